"""Files that somebody else wrote: read up to a size, and refused where others could change code in them.

Without a size limit, a wrong name such as ``/dev/zero`` would have no end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trimtab_api.errors import UserError
from trimtab_api.units import format_size

#: Bytes of a file that a user writes: a job, a network. `kubectl apply` takes half as much.
MAX_TEXT_BYTES = 500_000
#: Bytes of a record that a program of ours wrote, such as the profile of one step.
MAX_RECORD_BYTES = 64_000_000


def read_text(path: str | Path, content: str) -> str:
    """Read a file that a user wrote; ``content`` names what it should hold, such as ``a TrainingJob``.

    Raises:
        UserError: The file cannot be read, is too large, or is not UTF-8 text.
    """
    file = str(path)
    try:
        data = read_bytes(path, MAX_TEXT_BYTES)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}); check the path", file=file) from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"is not a text file; write {content} in YAML", file=file) from None


def read_bytes(path: str | Path, limit: int = MAX_RECORD_BYTES) -> bytes:
    """Read a whole file of at most ``limit`` bytes.

    Raises:
        OSError: If the file cannot be read.
        UserError: If it is larger.
    """
    with Path(path).open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise UserError(f"has more than {format_size(limit)}, the most that is read; name another file", file=str(path))
    return data


_ROOT = 0


def private_path_error(path: Path) -> str | None:
    """Return who else may change ``path``, or put another in its place; None if nobody may.

    Only root and this user may own it and the directories above it, and nobody else may write to them. A directory
    above it that others may write to must be sticky, as ``/tmp`` is. A symbolic link is refused.
    """
    try:
        if stat.S_ISLNK(path.lstat().st_mode):
            return f"{path} is a symbolic link"
        for part in (path, *path.absolute().parents):
            found = part.stat()
            if found.st_uid not in (_ROOT, os.geteuid()):
                return f"{part} belongs to user {found.st_uid}"
            is_sticky = part != path and stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
            if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky:
                return f"{part} may be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None
