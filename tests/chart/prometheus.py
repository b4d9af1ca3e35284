"""Prometheus, and promtool, its own judge of rules: those on PATH, or Debian's.

Debian's package would start a Prometheus of its own, so it is not installed: the two programs are taken out of it and
kept in the user's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import binaries

PROGRAMS = ("prometheus", "promtool")
_PACKAGE = "prometheus"


def find(program: str) -> Path | None:
    """Where it is, if it is here already."""
    on_path = shutil.which(program)
    kept = binaries.cache() / program
    return Path(on_path) if on_path else kept if kept.is_file() else None


def why_missing() -> str | None:
    """None if both are here or can be had; otherwise what to do."""
    return None if all(map(find, PROGRAMS)) or shutil.which("apt-get") else "no promtool: install Prometheus"


def obtain(program: str) -> Path:
    """Where it is; downloads both where it is not here. Raises CalledProcessError where that fails."""
    found = find(program)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory() as scratch:
        if _run(scratch, "apt-get", "download", _PACKAGE).returncode != 0:
            _run(scratch, "apt-get", "update").check_returncode()
            _run(scratch, "apt-get", "download", _PACKAGE).check_returncode()
        (package,) = Path(scratch).glob("*.deb")
        _run(scratch, "dpkg-deb", "--extract", package, "files").check_returncode()
        for each in PROGRAMS:
            kept = binaries.cache() / each
            kept.parent.mkdir(parents=True, exist_ok=True)
            own = kept.with_suffix(f".{os.getpid()}")  # several tests may do so at once
            shutil.move(Path(scratch) / "files/usr/bin" / each, own)
            own.replace(kept)
    return binaries.cache() / program


def _run(directory: str, *command: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([str(each) for each in command], cwd=directory, capture_output=True, timeout=300, check=False)
