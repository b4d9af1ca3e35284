"""A checkpoint is there once its manifest is, and damage of any of its files is found before anything of it is used."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from trimtab.checkpoint import manifest as manifests
from trimtab.checkpoint import shards
from trimtab.checkpoint.manifest import Manifest, finish, new_folder, prune, read_manifest, saved
from trimtab.checkpoint.shards import FORMAT, DamagedError, read_part, write_part
from trimtab.checkpoint.state_tree import take_apart
from trimtab.checkpoint.store import LocalStore, Store
from written import part, read_all, write


def test_what_is_written_is_read(store: Store) -> None:
    folders = {step: write(store, step) for step in (20, 10, 30)}
    assert [each.step for each in saved(store)] == [30, 20, 10]
    newest = saved(store)[0]
    assert newest.folder == folders[30]
    for record in newest.manifest.parts:
        state = read_part(store, newest.folder, record)
        assert state["n"] == 30
        assert torch.equal(state["w"], torch.full((100,), 30.0))
    assert newest.manifest.num_bytes > 3 * 400


def test_old_ones_are_removed_and_what_was_never_finished(store: Store) -> None:
    write(store, 10)
    unfinished = new_folder(15)
    part(store, unfinished, "rank-0", 15)
    begun = new_folder(40)
    part(store, begun, "rank-0", 40)
    newest = [write(store, 20), write(store, 30)]
    prune(store, 2)
    assert store.names() == sorted([*newest, begun])


def test_a_part_that_does_not_come_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_folder(10)
    own = {f"{name}.json": part(store, folder, name, 10) for name in ("rank-0", "shared")}
    monkeypatch.setattr(manifests, "QUIET_SECONDS", 0.5)
    with pytest.raises(TimeoutError, match=r"rank-1\.json is missing"):
        finish(store, folder, Manifest(FORMAT, 10, 2, "job", "model", (), 0.0, 0), own, lambda _: True)
    assert saved(store) == []


def test_every_flip_and_every_truncation_is_found(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    folder = write(store, 10)
    files = sorted((tmp_path / folder).iterdir())
    assert len(files) == 2 * 3 + 1
    draw = random.Random(0)
    for number in range(300):
        path = draw.choice(files)
        whole = path.read_bytes()
        damaged = bytearray(whole)
        place = draw.randrange(len(whole))
        if number % 2:
            damaged[place] ^= 1 << draw.randrange(8)
        else:
            del damaged[place:]
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match=path.name):
            read_all(store, folder)
        path.write_bytes(whole)
    read_all(store, folder)


def test_a_newer_format_is_refused_by_name(store: Store) -> None:
    folder = write(store, 10)
    newer = replace(read_manifest(store, folder), format=FORMAT + 1)
    store.write(f"{folder}/{manifests.MANIFEST}", newer.sealed())
    with pytest.raises(DamagedError, match=rf"{folder}/manifest\.json has format 2, and this version reads 1"):
        read_manifest(store, folder)
    said: list[str] = []
    assert saved(store, said.append) == []
    assert len(said) == 1


def test_large_states_are_cut_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 1000)
    store, tensors = LocalStore(tmp_path), [torch.randn(size) for size in (100, 200, 50, 400, 1)]
    record = write_part(store, "folder", "shared", take_apart(tensors), lambda _: None)
    assert len(list(tmp_path.glob("folder/*.safetensors"))) == 4
    assert all(map(torch.equal, tensors, read_part(store, "folder", record)))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_ranks": 3}, "has 3 parts of 3 ranks"),
        ({"num_ranks": -1, "parts": ()}, "has 0 parts of -1 ranks"),
        ({"saved_at": float("nan")}, "saved_at: Input should be a finite number"),
    ],
)
def test_a_foreign_manifest_with_a_checksum_that_fits_is_refused(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    store = LocalStore(tmp_path)
    folder = write(store, 10)
    store.write(f"{folder}/{manifests.MANIFEST}", replace(read_manifest(store, folder), **change).sealed())
    with pytest.raises(DamagedError, match=rf"manifest\.json:? {problem}"):
        read_manifest(store, folder)
