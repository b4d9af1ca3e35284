"""Where a pod's ranks keep compiled kernels. The image ships some, in a directory that may be read-only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


def kernel_cache(environ: Mapping[str, str], run_directory: Path) -> dict[str, str]:
    """The variable to set for the ranks: the shipped directory if it is writable, else a copy in the run directory.

    Numba reads a cache only in a directory that it may write to. It compiles anew on a processor other than the one
    that the image was built on.
    """
    shipped = environ.get(VARIABLE)
    if shipped is not None and os.access(shipped, os.W_OK):
        return {VARIABLE: shipped}
    own = run_directory / "kernels"
    own.mkdir(parents=True, exist_ok=True)
    if shipped is not None and Path(shipped).is_dir():
        shutil.copytree(shipped, own, dirs_exist_ok=True)
    return {VARIABLE: str(own)}
