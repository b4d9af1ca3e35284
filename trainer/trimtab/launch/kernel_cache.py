"""Where a pod's ranks keep compiled kernels: an image that nobody may write to ships those it has compiled."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


def kernel_cache(environ: Mapping[str, str], run_directory: Path) -> dict[str, str]:
    """The variable for the ranks: what is set if it may be written to, else a copy in the run directory.

    Numba reads a cache only where it could also write, and compiles anew for a processor that the image was not built
    on.
    """
    shipped = environ.get(VARIABLE)
    if shipped is not None and os.access(shipped, os.W_OK):
        return {VARIABLE: shipped}
    own = run_directory / "kernels"
    own.mkdir(parents=True, exist_ok=True)
    if shipped is not None and Path(shipped).is_dir():
        shutil.copytree(shipped, own, dirs_exist_ok=True)
    return {VARIABLE: str(own)}
