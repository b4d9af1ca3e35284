"""In what order a checkpoint is written, and what a failed attempt leaves behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import trimtab
from trimtab.checkpoint import whole_files


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


def test_a_checkpoint_that_cannot_be_written_leaves_both_that_there_were(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    for number in (1, 2):
        trimtab.write_checkpoint(path, {"number": number})
    with pytest.raises((AttributeError, TypeError, ValueError, RuntimeError)):
        trimtab.write_checkpoint(path, {"number": lambda: 3})
    assert torch.load(path)["number"] == 2
    assert torch.load(tmp_path / "model.pt.previous")["number"] == 1
