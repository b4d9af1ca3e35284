"""A directory for what a pod's processes need and no other user may read or write."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trimtab_api.errors import UserError

#: A pod's memory volume, for where ``/tmp`` cannot be written.
_FURTHER_FOLDERS = (None, "/dev/shm")  # noqa: S108  # a directory of its own is made there


@contextmanager
def private_folder(prefix: str, purpose: str, field: str) -> Iterator[Path]:
    """Make a directory with a name that nobody can foresee, which this user alone may enter; it goes afterwards.

    Args:
        prefix: Begins its name.
        purpose: Says what needs it, where there is no place for it.
        field: What the user set for that.

    Raises:
        UserError: There is no place for it.
    """
    for parent in _FURTHER_FOLDERS:
        with suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            break
    else:
        raise UserError(f"{purpose} a private directory; mount a writable volume at /tmp", field=field)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
