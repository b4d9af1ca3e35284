"""promtool, Prometheus' own judge of rules: the one on PATH, or Debian's.

Debian's package would start a Prometheus too, so it is not installed: promtool is taken out of it and kept in the
user's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import binaries

_PACKAGE = "prometheus"


def find() -> Path | None:
    """Where it is, if it is here already."""
    on_path = shutil.which("promtool")
    kept = binaries.cache() / "promtool"
    return Path(on_path) if on_path else kept if kept.is_file() else None


def why_missing() -> str | None:
    """None if it is here or can be had; otherwise what to do."""
    return None if find() or shutil.which("apt-get") else "no promtool: install Prometheus"


def obtain() -> Path:
    """Where it is; downloads it where it is not here. Raises CalledProcessError where that fails."""
    found = find()
    if found is not None:
        return found
    with tempfile.TemporaryDirectory() as scratch:
        if _run(scratch, "apt-get", "download", _PACKAGE).returncode != 0:
            _run(scratch, "apt-get", "update").check_returncode()
            _run(scratch, "apt-get", "download", _PACKAGE).check_returncode()
        (package,) = Path(scratch).glob("*.deb")
        _run(scratch, "dpkg-deb", "--extract", package, "files").check_returncode()
        kept = binaries.cache() / "promtool"
        kept.parent.mkdir(parents=True, exist_ok=True)
        own = kept.with_suffix(f".{os.getpid()}")  # several tests may do so at once
        shutil.move(Path(scratch) / "files/usr/bin/promtool", own)
        own.replace(kept)
    return kept


def _run(directory: str, *command: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([str(each) for each in command], cwd=directory, capture_output=True, timeout=300, check=False)
