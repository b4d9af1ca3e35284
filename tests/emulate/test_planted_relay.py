"""The relay runs as root: a file at its place that others may have put there, or may change, is not run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from trimtab_api.errors import UserError
from trimtab_netmon.emulate import build


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A relay that is this user's own, in a directory of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    target = build.relay_path()
    target.parent.mkdir(mode=0o700)
    target.write_text("#!/bin/sh\n")
    target.chmod(0o755)
    return target


def test_a_relay_of_this_users_own_is_used(planted: Path) -> None:
    assert build.build_relay() == planted


def test_a_relay_that_others_may_write_is_refused(planted: Path) -> None:
    planted.chmod(0o777)
    with pytest.raises(UserError, match=r"may be written by others \(mode 777\).*; remove it, or set XDG_CACHE_HOME"):
        build.build_relay()


def test_a_relay_in_a_directory_that_others_may_write_is_refused(planted: Path) -> None:
    planted.parent.chmod(0o777)
    with pytest.raises(UserError, match="may be written by others"):
        build.build_relay()
    planted.unlink()
    with pytest.raises(UserError, match="may be written by others"):
        build.build_relay()


def test_a_relay_that_is_a_link_is_refused(planted: Path) -> None:
    planted.unlink()
    planted.symlink_to("/bin/true")
    with pytest.raises(UserError, match="is a symbolic link"):
        build.build_relay()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_relay_of_another_user_is_refused(planted: Path) -> None:
    os.chown(planted, 65534, 65534)
    with pytest.raises(UserError, match="belongs to user 65534"):
        build.build_relay()
