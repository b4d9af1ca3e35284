"""The files of a checkpoint. A stranger's checksums fit, and so do these: what is behind them is judged too."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import torch
from target import Target, told
from text_targets import folder
from trimtab.checkpoint import whole_files
from trimtab.checkpoint.manifest import MANIFEST, Manifest, read_manifest
from trimtab.checkpoint.shards import FORMAT, DamagedError, FileRecord, read_part, write_part
from trimtab.checkpoint.state_tree import NotPlainError, take_apart
from trimtab.checkpoint.store import Store
from trimtab_api.errors import UserError


class InMemory(Store):
    """A store of this process."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def write(self, name: str, data: bytes | memoryview) -> None:
        self.files[name] = bytes(data)

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def names(self, folder: str = "") -> list[str]:
        return sorted({name.removeprefix(f"{folder}/").partition("/")[0] for name in self.files})

    def remove(self, folder: str) -> None:
        self.files = {name: data for name, data in self.files.items() if not name.startswith(f"{folder}/")}


@cache
def written() -> tuple[InMemory, FileRecord]:
    """Return a store with one part, and the part's record."""
    state = {
        "weights": torch.arange(6.0).view(2, 3), "half": torch.ones(3, dtype=torch.bfloat16), "counts": np.arange(4),
        "pairs": {1: (2, None), "x": {3.5, "y"}}, "raw": b"ab",
        "odd": [float("nan"), float("-inf")], "kind": torch.float16,
    }  # fmt: skip
    store = InMemory()
    return store, write_part(store, "f", "rank-0", take_apart(state), lambda _: None)


def feed_manifest(data: bytes) -> None:
    """Read a manifest; where it is JSON with a checksum, as it is and with one that fits."""
    for text in {data, _sealed(data)}:
        store = InMemory()
        store.write(f"f/{MANIFEST}", text)
        try:
            manifest = read_manifest(store, "f")
        except DamagedError as error:
            told(error, MANIFEST)
            continue
        store.write(f"f/{MANIFEST}", manifest.sealed())
        assert read_manifest(store, "f") == manifest
        assert len(manifest.parts) == manifest.num_ranks + 1


def _sealed(data: bytes) -> bytes:
    try:
        fields = json.loads(data)
        text = json.dumps({**fields, "checksum": ""}).encode()
        return json.dumps({**fields, "checksum": hashlib.sha256(text).hexdigest()}).encode()
    except (ValueError, TypeError, RecursionError):
        return data


def feed_part(data: bytes) -> None:
    """Read a part whose record, or whose tensors by an odd first byte, are foreign."""
    store = written()[0]
    foreign = InMemory()
    foreign.files = dict(store.files)
    record = json.loads(store.files["f/rank-0.json"])
    if data and data[0] % 2:
        shard = FileRecord.of("rank-0-0.safetensors", data[1:])
        foreign.write(f"f/{shard.name}", data[1:])
        text = json.dumps({**record, "shards": [asdict(shard)]}).encode()
    else:
        text = data[1:]
    foreign.write("f/rank-0.json", text)
    try:
        state = read_part(foreign, "f", FileRecord.of("rank-0.json", text))
    except DamagedError as error:
        told(error, "f/")
        return
    try:
        parts = take_apart(state)
    except NotPlainError:  # JSON says a set within a set, which a state does not hold
        return
    again = InMemory()
    read_part(again, "f", write_part(again, "f", "rank-0", parts, lambda _: None))


def parts() -> list[bytes]:
    """Return the real record and the real tensors."""
    files = written()[0].files
    return [b"\0" + files["f/rank-0.json"], b"\1" + files["f/rank-0-0.safetensors"]]


def manifests() -> list[bytes]:
    """Return a real manifest."""
    record = written()[1]
    return [Manifest(FORMAT, 10, 1, "job", "model", (record, record), 1.5, 100).sealed()]


def feed_script_file(data: bytes) -> None:
    """Read a script's own checkpoint, with a checksum that fits."""
    path = folder() / "model.pt"
    path.write_bytes(data + b"\ntrimtab-sha256\n" + hashlib.sha256(data).digest())
    try:
        whole_files.read(path, "remove it")
    except UserError as error:
        told(error)


def script_files() -> list[bytes]:
    """Return what `torch.save` writes."""
    held = io.BytesIO()
    state: dict[str, Any] = {"model": {"w": torch.arange(6.0)}, "step": 3, "rates": [0.1, None], "name": "x"}
    torch.save(state, held)
    return [held.getvalue()]


TARGETS = [
    Target("manifest", feed_manifest, manifests),
    Target("part", feed_part, parts),
    Target("script-file", feed_script_file, script_files, 400),
]
