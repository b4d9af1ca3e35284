"""A file that grows by whole lines: one that cannot be written in full leaves nothing behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class LineFile:
    """Appends lines, each complete in the file when the call returns."""

    def __init__(self, path: Path) -> None:
        """Raises `OSError` where the file cannot be made."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, line: str) -> None:
        """Append ``line``. Raises `OSError` where it does not fit; the file then holds what it held before."""
        data = line.encode()
        size = os.fstat(self._file).st_size
        if os.write(self._file, data) < len(data):
            os.ftruncate(self._file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
