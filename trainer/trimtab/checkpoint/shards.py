"""One process's part of a checkpoint as files: tensors in shards of safetensors, and a record in JSON that lists them.

The record has the size and the SHA-256 of each shard, and the state's skeleton. It is written last, so that a part is
whole once its record is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import safetensors
import safetensors.torch
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from trimtab.checkpoint.packing import packed
from trimtab.checkpoint.state_tree import NotPlainError, Parts, put_together
from trimtab.checkpoint.store import Store

#: Bytes of tensors in one file: as much is held once more while it is written.
SHARD_BYTES = 128 << 20
#: Version of all files of a checkpoint; a file of a newer one is refused.
FORMAT = 1


class DamagedError(Exception):
    """A checkpoint's file is missing, torn, foreign or newer; the message names it."""


def read_file(store: Store, path: str) -> bytes:
    """Return what is kept there. Raise `DamagedError` if it is missing or cannot be read."""
    try:
        return store.read(path)
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing") from None
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror or error})") from None


@dataclass(frozen=True)
class FileRecord:
    """One file as it was written."""

    name: str
    num_bytes: int
    sha256: str

    @classmethod
    def of(cls, name: str, data: bytes | memoryview) -> FileRecord:
        """Return the record of ``data`` under ``name``."""
        return cls(name, len(data), hashlib.sha256(data).hexdigest())

    def read(self, store: Store, folder: str) -> bytes:
        """Return the file's contents.

        Raises:
            DamagedError: It is missing, or is not what was written.
        """
        path = f"{folder}/{self.name}"
        if "/" in self.name:
            raise DamagedError(f"{path} is outside of its checkpoint")
        data = read_file(store, path)
        if len(data) != self.num_bytes:
            raise DamagedError(f"{path} has {len(data)} bytes of {self.num_bytes}")
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise DamagedError(f"{path} is not what was written: its checksum differs")
        return data


@dataclass(frozen=True)
class PartRecord:
    """Record of one part."""

    format: int
    shards: tuple[FileRecord, ...]
    skeleton: Any


_RECORD: TypeAdapter[PartRecord] = TypeAdapter(PartRecord)


def write_part(store: Store, folder: str, name: str, parts: Parts, pace: Callable[[int], None]) -> FileRecord:
    """Write ``parts`` as ``folder/name.json`` and its shards.

    Args:
        store: Where.
        folder: The checkpoint's folder in the store.
        name: The part's name, such as ``rank-3``.
        parts: Tensors that nobody changes meanwhile, on the CPU.
        pace: Called after each file with its bytes; it may wait.

    Returns:
        The part's record, as a file.

    Raises:
        OSError: A file cannot be written.
    """
    shards = []
    for number, tensors in enumerate(_shards_of(parts.tensors)):
        data = packed(tensors)
        file = FileRecord.of(f"{name}-{number}.safetensors", data)
        store.write(f"{folder}/{file.name}", data)
        shards.append(file)
        pace(len(data))
    record = json.dumps(asdict(PartRecord(FORMAT, tuple(shards), parts.skeleton))).encode()
    own = FileRecord.of(f"{name}.json", record)
    store.write(f"{folder}/{own.name}", record)
    pace(len(record))
    return own


def _shards_of(tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Yield tensors in groups of at most `SHARD_BYTES`, or of one."""
    group: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors.items():
        if group and size + tensor.nbytes > SHARD_BYTES:
            yield group
            group, size = {}, 0
        group[name] = tensor.contiguous()
        size += tensor.nbytes
    if group:
        yield group


def read_part(store: Store, folder: str, record: FileRecord) -> Any:
    """Return the state of one part, its tensors on the CPU.

    Raises:
        DamagedError: A file is missing, torn, foreign or newer.
    """
    part = read_record(record.read(store, folder), _RECORD, f"{folder}/{record.name}")
    tensors: dict[str, Tensor] = {}
    for shard in part.shards:
        data = shard.read(store, folder)
        try:
            tensors.update(safetensors.torch.load(data))
        except (safetensors.SafetensorError, ValueError, KeyError) as error:
            raise DamagedError(f"{folder}/{shard.name} holds no tensors ({error})") from None
    try:
        return put_together(part.skeleton, tensors)
    except NotPlainError as error:
        raise DamagedError(f"{folder}/{record.name}: {error}") from None


def read_record(data: bytes, kind: TypeAdapter[Any], path: str) -> Any:
    """Return a record of this version.

    Raises:
        DamagedError: It is no such record, or one of a newer version.
    """
    try:
        version = json.loads(data)["format"]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise DamagedError(f"{path} is no record of a checkpoint") from None
    if version != FORMAT:
        raise DamagedError(f"{path} has format {version}, and this version reads {FORMAT}")
    try:
        return kind.validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DamagedError(f"{path}: {place}: {first['msg']}") from None


def copied(parts: Parts) -> Parts:
    """Return the parts with each tensor copied to the CPU, which is what training waits for."""
    with torch.no_grad():
        return Parts(parts.skeleton, {name: _on_cpu(tensor) for name, tensor in parts.tensors.items()})


def _on_cpu(tensor: Tensor) -> Tensor:
    # No run has proven the copy to pinned memory of a GPU's tensors.
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    return pinned.copy_(tensor, non_blocking=False)
