"""A file that grows by whole lines: one that cannot be written in full leaves nothing behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

#: Bytes after which a file is begun anew: some 400,000 steps of ``metrics.jsonl``.
MOST_BYTES = 256 << 20


def earlier_part(path: Path) -> Path:
    """Return where the lines before those in ``path`` are, if any: ``a.earlier.jsonl`` for ``a.jsonl``."""
    return path.with_suffix(f".earlier{path.suffix}")


class LineFile:
    """Appends lines, each complete in the file when the call returns.

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
