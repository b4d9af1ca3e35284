"""In what order a checkpoint is written, and what a failed attempt leaves behind."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimtab
from trimtab.checkpoint import whole_files
from trimtab_api.errors import UserError


def test_a_file_is_on_disk_before_it_takes_the_old_ones_place_and_then_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, partial = tmp_path / "model.pt", tmp_path / f"model.pt{whole_files.PARTIAL}"
    whole_files.write(path, {"number": 1})
    events: list[object] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        events.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")), torch.load(path)["number"]))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    whole_files.write(path, {"number": 2}, lambda: events.append(("replacing", partial.exists())))
    assert events == [(partial, 1), ("replacing", True), (tmp_path, 2)]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (np.float64(0.5), "numpy"),
        (np.arange(3), "numpy"),
        (argparse.Namespace(lr=0.1), "argparse.Namespace"),
        (Path("data"), "pathlib"),
        (lambda: 3, "lambda"),
    ],
    ids=["number", "array", "namespace", "path", "function"],
)
def test_what_could_not_be_read_again_is_refused_when_it_is_written(tmp_path: Path, value: Any, named: str) -> None:
    path = tmp_path / "model.pt"
    for number in (1, 2):
        trimtab.write_checkpoint(path, {"number": number})
    with pytest.raises(UserError, match=rf"cannot keep what it was given \(.*{named}.*\); hand over plain data"):
        trimtab.write_checkpoint(path, {"number": 3, "value": value})
    assert trimtab.read_checkpoint(path) == {"number": 2}
    assert torch.load(tmp_path / "model.pt.previous")["number"] == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.pt", "model.pt.previous"]


def test_a_directory_is_no_checkpoint_and_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "best").mkdir(parents=True)
    with pytest.raises(UserError, match="checkpoints: is a directory; name a file in it"):
        trimtab.write_checkpoint(tmp_path / "checkpoints", {})
    with pytest.raises(UserError, match=r"checkpoints: cannot be read \(Is a directory\)"):  # not: remove it
        trimtab.read_checkpoint(tmp_path / "checkpoints")
    assert (tmp_path / "checkpoints" / "best").is_dir()


def test_a_file_that_holds_more_than_plain_data_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.pt"
    monkeypatch.setattr(whole_files, "_check_can_be_read", lambda _: None)  # as an earlier version wrote it
    trimtab.write_checkpoint(path, {"args": argparse.Namespace(lr=0.1)})
    with pytest.raises(UserError, match=r"model\.pt: holds argparse\.Namespace, which is not read"):
        trimtab.read_checkpoint(path)


def test_a_foreign_file_whose_checksum_fits_is_called_damaged(tmp_path: Path) -> None:
    """Its pickle takes from an empty stack, as fuzzing found: torch's unpickler raises IndexError."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in {"data.pkl": b"\x80\x02b.", "version": b"3\n", "byteorder": b"little"}.items():
            archive.writestr(f"archive/{name}", data)
    content, path = held.getvalue(), tmp_path / "model.pt"
    path.write_bytes(content + b"\ntrimtab-sha256\n" + hashlib.sha256(content).digest())
    with pytest.raises(UserError, match="is damaged; remove it"):
        whole_files.read(path, "remove it")
