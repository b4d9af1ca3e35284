"""The cache of compiled kernels of a pod's ranks. The image ships some, in a directory that may be read-only.

Numba unpickles what it finds in its cache, which runs code. So the cache is never on the run volume, which others may
write: it is a directory that this user alone may write.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from trimtab_api.errors import UserError
from trimtab_api.input_files import private_path_error

VARIABLE = "NUMBA_CACHE_DIR"
#: A pod's memory volume, for where ``/tmp`` cannot be written.
_FURTHER_FOLDERS = (None, "/dev/shm")  # noqa: S108  # a directory of its own is made there


@contextlib.contextmanager
def kernel_cache(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Give the variable to set for the ranks: the shipped directory if it is writable, else a private copy of it.

    What is made for it goes when the context is left.

    Numba reads a cache only in a directory that it may write to. It compiles anew on a processor other than the one
    that the image was built on, and where others may have written what was shipped.

    Raises:
        UserError: There is no place for a private directory.
    """
    shipped = environ.get(VARIABLE)
    usable = shipped if shipped is not None and _is_usable(Path(shipped)) else None
    if usable is not None and os.access(usable, os.W_OK):
        yield {VARIABLE: usable}
        return
    own = _private_folder()
    try:
        if usable is not None:
            shutil.copytree(usable, own, dirs_exist_ok=True)
            own.chmod(0o700)  # not the mode of what was copied
        yield {VARIABLE: str(own)}
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _is_usable(shipped: Path) -> bool:
    """Return whether this is a directory that nobody else may have written to, and print why not."""
    if not shipped.is_dir():
        return False
    error = next(filter(None, map(private_path_error, (shipped, *shipped.rglob("*")))), None)
    if error is not None:
        print(f"trimtab: {VARIABLE}={shipped} is not used, for {error}; kernels are compiled anew", flush=True)
    return error is None


def _private_folder() -> Path:
    """Make a directory with a name that nobody can foresee, which this user alone may enter."""
    for parent in _FURTHER_FOLDERS:
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="trimtab-kernels-", dir=parent))
    raise UserError("compiled kernels need a private directory; mount a writable volume at /tmp", field=VARIABLE)
