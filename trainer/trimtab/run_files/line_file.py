"""A file that grows by whole lines of JSON: its writer, and its reader, who may come while it grows."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trimtab_api.input_files import MAX_RECORD_BYTES
from trimtab_api.units import format_size

from trimtab.run_files.json_files import RecordT, damaged, parse_object, read_record

#: Bytes after which a file is begun anew: some 400,000 steps of ``metrics.jsonl``.
MOST_BYTES = 256 << 20


def earlier_part(path: Path) -> Path:
    """Return where the lines before those in ``path`` are, if any: ``a.earlier.jsonl`` for ``a.jsonl``."""
    return path.with_suffix(f".earlier{path.suffix}")


class LineFile:
    """Appends lines, each complete in the file when the call returns; one that does not fit leaves nothing behind.

    A file that has become long is renamed to its `earlier_part`, which replaces the one before, and begun anew.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raise `OSError` where it cannot be made."""
        self._path = path
        self._open()

    def write(self, line: str) -> None:
        """Append ``line``. Raises `OSError` where it does not fit; the file then holds what it held before."""
        data = line.encode()
        size = os.fstat(self._file).st_size
        if size and size + len(data) > MOST_BYTES:
            self._path.replace(earlier_part(self._path))
            self.close()
            self._open()
            size = 0
        if os.write(self._file, data) < len(data):
            os.ftruncate(self._file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)


class Tail:
    """Reads the lines that a file gained since the last call; a line still being written waits for the next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """Yield each new line as JSON, nothing while the file does not exist. Raise `UserError` on a damaged line."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            if file.seek(0, 2) < self._position:  # it was begun anew
                self._position = 0
            file.seek(self._position)
            while line := file.readline(MAX_RECORD_BYTES + 1):
                if len(line) > MAX_RECORD_BYTES:
                    raise damaged(f"has a line of more than {format_size(MAX_RECORD_BYTES)}", line, self._path)
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                yield parse_object(line, self._path)

    def new_records(self, kind_of: Callable[[dict[str, Any]], type[RecordT] | None]) -> Iterator[RecordT]:
        """Yield each new line that has a kind as a record of it. Raise `UserError` on a damaged line."""
        for line in self.new_lines():
            if kind := kind_of(line):
                yield read_record(kind, line, self._path)


def all_records(path: Path, kind_of: Callable[[dict[str, Any]], type[RecordT] | None]) -> Iterator[RecordT]:
    """Yield the records of every line that is kept of a file, its `earlier_part` first. Raises as `Tail` does."""
    for each in (earlier_part(path), path):
        yield from Tail(each).new_records(kind_of)
