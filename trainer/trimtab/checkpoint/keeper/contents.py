"""Files in memory, of a bounded number of bytes; a file is there as a whole or not at all."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from trimtab_api.units import format_size

#: Characters of a name. What a file takes beside its bytes is counted with so many more.
LONGEST_NAME, FILE_OVERHEAD = 256, 1024
#: Bytes of a file in one message, on the way in and on the way out.
CHUNK_BYTES = 1 << 20


class FullError(Exception):
    """There is no room for a file; the message says how much there is."""


class WrongBytesError(Exception):
    """A file's bytes are not those that were announced."""


class KeptFile(NamedTuple):
    """One whole file; nobody changes its bytes."""

    data: bytearray
    sha256: bytes


class Contents:
    """The files of one keeper."""

    def __init__(self, max_bytes: int) -> None:
        """Keep nothing yet, and never more than ``max_bytes``, with files that are still coming."""
        self._max_bytes = max_bytes
        self._files: dict[str, KeptFile] = {}
        self._num_bytes = 0
        """Of all files, and of those that are still coming."""

    def begin(self, name: str, size: int, sha256: bytes) -> Upload:
        """Make room for a file; its `Upload` must be finished or abandoned.

        Raises:
            FullError: There is none.
            ValueError: It is no name of a file.
        """
        parts = name.split("/")
        if len(name) > LONGEST_NAME or len(parts) > 2 or not all(parts):
            raise ValueError(f"{name[:LONGEST_NAME]!r} is no name; write FOLDER/FILE or FILE")
        needed = size + FILE_OVERHEAD
        if self._num_bytes + needed > self._max_bytes:
            raise FullError(
                f"holds {format_size(self._num_bytes)} of at most {format_size(self._max_bytes)}, and {name} needs"
                f" {format_size(size)} more"
            )
        self._num_bytes += needed
        return Upload(self, name, size, sha256)

    def get(self, name: str) -> KeptFile | None:
        """Return a file; None if there is none."""
        return self._files.get(name)

    def names(self, folder: str) -> list[str]:
        """Return the names of files in ``folder``; for "" those of folders, and of files outside of any."""
        if not folder:
            return sorted({name.partition("/")[0] for name in self._files})
        return sorted(name.removeprefix(f"{folder}/") for name in self._files if name.startswith(f"{folder}/"))

    def remove(self, folder: str) -> None:
        """Remove all files in ``folder``."""
        for name in [name for name in self._files if name.startswith(f"{folder}/")]:
            self.free(len(self._files.pop(name).data))

    def keep(self, name: str, file: KeptFile) -> None:
        """Put a whole file, for which there is room, in the place of the one that has its name."""
        if name in self._files:
            self.free(len(self._files[name].data))
        self._files[name] = file

    def free(self, size: int) -> None:
        """Give back the room of one file."""
        self._num_bytes -= size + FILE_OVERHEAD


class Upload:
    """A file that is coming."""

    def __init__(self, contents: Contents, name: str, size: int, sha256: bytes) -> None:
        self._contents, self._name, self._sha256 = contents, name, sha256
        self._data = bytearray(size)
        self._num_bytes = 0
        self._hash = hashlib.sha256()
        self._is_over = False

    def append(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            WrongBytesError: They are more than were announced.
        """
        end = self._num_bytes + len(data)
        if end > len(self._data):
            raise WrongBytesError(f"{self._name} has more than the {len(self._data)} bytes that were announced")
        self._data[self._num_bytes : end] = data
        self._hash.update(data)
        self._num_bytes = end

    def finish(self) -> None:
        """Keep the file.

        Raises:
            WrongBytesError: Bytes are missing, or others than were announced.
        """
        if self._num_bytes != len(self._data):
            raise WrongBytesError(f"{self._name} has {self._num_bytes} bytes of {len(self._data)}")
        if self._hash.digest() != self._sha256:
            raise WrongBytesError(f"{self._name} is not what was sent: its checksum differs")
        self._is_over = True
        self._contents.keep(self._name, KeptFile(self._data, self._sha256))

    def abandon(self) -> None:
        """Give back the room, unless the file was kept."""
        if not self._is_over:
            self._is_over = True
            self._contents.free(len(self._data))
