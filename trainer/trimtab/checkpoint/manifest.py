"""A checkpoint of all ranks: it is there once its manifest is, which is written last."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from trimtab.checkpoint.shards import FORMAT, DamagedError, FileRecord, read_file, read_record
from trimtab.checkpoint.store import Store

MANIFEST = "manifest.json"
_FOLDER = re.compile(r"step-(\d{12})-([0-9a-f]{8})")
#: Seconds between two looks for the other ranks' parts.
_LOOK_SECONDS = 0.2
#: Seconds without a new file after which a part that is missing is taken not to come.
QUIET_SECONDS = 120.0


@dataclass(frozen=True)
class Manifest:
    """All files of one checkpoint, by the records of its parts."""

    __pydantic_config__ = ConfigDict(allow_inf_nan=False)

    format: int
    step: int
    num_ranks: int
    job: str
    """Name of the job."""
    model: str
    """Fingerprint of the model's parameters: names, shapes and types."""
    parts: tuple[FileRecord, ...]
    """Of each rank, in order, and then the shared part."""
    saved_at: float
    """Seconds since 1970."""
    num_bytes: int
    """Of all files but this one."""
    checksum: str = ""
    """SHA-256 of the manifest without this field."""

    def sealed(self) -> bytes:
        """Return the file's contents."""
        return json.dumps(asdict(replace(self, checksum=self._digest()))).encode()

    def is_sealed(self) -> bool:
        """Return whether the checksum is that of the other fields."""
        return self.checksum == self._digest()

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(replace(self, checksum=""))).encode()).hexdigest()


_MANIFEST: TypeAdapter[Manifest] = TypeAdapter(Manifest)


@dataclass(frozen=True, order=True)
class Saved:
    """A checkpoint whose manifest is whole."""

    step: int
    folder: str
    manifest: Manifest


def new_folder(step: int) -> str:
    """Return a name that no checkpoint has had: a run that goes on from before a step comes to that step again."""
    return f"step-{step:012d}-{secrets.token_hex(4)}"


def step_of(folder: str) -> int | None:
    """Return the step of a checkpoint's folder; None for another name."""
    found = _FOLDER.fullmatch(folder)
    return int(found[1]) if found else None


def read_manifest(store: Store, folder: str) -> Manifest:
    """Return the manifest in ``folder``.

    Raises:
        DamagedError: It is missing, torn, foreign or newer.
    """
    path = f"{folder}/{MANIFEST}"
    manifest: Manifest = read_record(read_file(store, path), _MANIFEST, path)
    if not manifest.is_sealed():
        raise DamagedError(f"{path} is not what was written: its checksum differs")
    if manifest.num_ranks < 1 or len(manifest.parts) != manifest.num_ranks + 1:
        raise DamagedError(f"{path} has {len(manifest.parts)} parts of {manifest.num_ranks} ranks")
    return manifest


def saved(store: Store, warn: Callable[[str], None] = lambda text: None) -> list[Saved]:
    """Return all checkpoints with a whole manifest, the newest first; ``warn`` is told of each that has none."""
    found = []
    for folder in store.names():
        step = step_of(folder)
        if step is None:
            continue
        try:
            found.append(Saved(step, folder, read_manifest(store, folder)))
        except DamagedError as error:
            if MANIFEST in store.names(folder):
                warn(f"checkpoint refused: {error}")
    return sorted(found, key=lambda each: (each.step, each.manifest.saved_at), reverse=True)


def finish(
    store: Store, folder: str, manifest: Manifest, own: dict[str, FileRecord], wait: Callable[[float], bool]
) -> Manifest:
    """Write the manifest of ``folder`` once every rank's record is there.

    Args:
        store: Where.
        folder: The checkpoint's folder.
        manifest: All but its parts.
        own: Records of the parts that this process has written, by name.
        wait: Waits for so many seconds; False if nobody waits any more.

    Returns:
        The manifest as it was written.

    Raises:
        TimeoutError: Some rank's part did not come; the message names it.
    """
    names = [*(f"rank-{rank}.json" for rank in range(manifest.num_ranks)), "shared.json"]
    parts = dict(own)
    seen: list[str] = []
    quiet = 0.0
    while missing := [name for name in names if name not in parts]:
        now = store.names(folder)
        quiet = quiet + _LOOK_SECONDS if now == seen else 0.0
        seen = now
        for name in set(missing) & set(seen):
            parts[name] = FileRecord.of(name, store.read(f"{folder}/{name}"))
        if len(parts) < len(names) and (quiet > QUIET_SECONDS or not wait(_LOOK_SECONDS)):
            raise TimeoutError(f"{folder}: nothing was written for {quiet:.0f} s, and {', '.join(missing)} is missing")
    size = sum(parts[name].num_bytes + _bytes_of_shards(store, folder, parts[name]) for name in names)
    done = replace(
        manifest, format=FORMAT, parts=tuple(parts[name] for name in names), saved_at=time.time(), num_bytes=size
    )
    store.write(f"{folder}/{MANIFEST}", done.sealed())
    return done


def _bytes_of_shards(store: Store, folder: str, record: FileRecord) -> int:
    held: Any = json.loads(record.read(store, folder))
    return sum(shard["num_bytes"] for shard in held["shards"])


def prune(store: Store, keep: int) -> None:
    """Remove all but the ``keep`` newest whole checkpoints, and older ones that were never finished."""
    whole = saved(store)
    if not whole:
        return
    kept = {each.folder for each in whole[:keep]}
    for folder in store.names():
        step = step_of(folder)
        if step is not None and folder not in kept and step <= whole[0].step:
            store.remove(folder)
