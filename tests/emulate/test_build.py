"""Where the relay is compiled to, and what is said where nothing can be."""

from pathlib import Path

import pytest
from trimtab_api.errors import UserError
from trimtab_netmon.emulate import build


def test_a_cache_that_cannot_be_written_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    with pytest.raises(UserError, match=r"'/proc/nothing/trimtab': cannot be written \(.*\); set XDG_CACHE_HOME to"):
        build.build_relay()


def test_a_user_without_a_home_directory_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000)
    with pytest.raises(UserError, match=r"^XDG_CACHE_HOME: is not set, and this user has no home directory"):
        build.relay_path()


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert build.relay_path().parent == tmp_path / ".cache/trimtab"
