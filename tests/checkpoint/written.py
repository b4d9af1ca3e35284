"""Checkpoints as ranks write them, small ones."""

from __future__ import annotations

import torch
from trimtab.checkpoint.manifest import Manifest, finish, new_folder, read_manifest
from trimtab.checkpoint.shards import FORMAT, FileRecord, read_part, write_part
from trimtab.checkpoint.state_tree import take_apart
from trimtab.checkpoint.store import Store

RANKS = 2


def part(store: Store, folder: str, name: str, step: int) -> FileRecord:
    return write_part(
        store, folder, name, take_apart({"w": torch.full((100,), float(step)), "n": step}), lambda _: None
    )


def write(store: Store, step: int, ranks: int = RANKS) -> str:
    folder = new_folder(step)
    own = {f"{name}.json": part(store, folder, name, step) for name in ("rank-0", "shared")}
    for rank in range(1, ranks):
        part(store, folder, f"rank-{rank}", step)
    finish(store, folder, Manifest(FORMAT, step, ranks, "job", "model", (), 0.0, 0), own, lambda _: False)
    return folder


def read_all(store: Store, folder: str) -> None:
    for record in read_manifest(store, folder).parts:
        read_part(store, folder, record)
