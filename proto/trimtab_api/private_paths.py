"""Whether a file or directory can be changed by this user alone: code that lies there is run, or unpickled."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_ROOT = 0


def private_path_error(path: Path) -> str | None:
    """Say who else may change ``path``, or put another in its place; None where nobody may.

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
