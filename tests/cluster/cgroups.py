"""A control group of our own, in which a kubelet keeps those of its pods: versions 1 and 2."""

from __future__ import annotations

import os
from pathlib import Path

from programs import wait_until

_ROOT = Path("/sys/fs/cgroup")
#: Controllers that a kubelet asks for.
_NEEDED = ("cpu", "cpuset", "memory", "pids")


def why_missing() -> str | None:
    """None where groups can be made; otherwise what is missing."""
    if _is_unified():
        here = set((_ROOT / "cgroup.controllers").read_text().split())
    else:
        here = {name for name in _NEEDED if (_ROOT / name).is_dir()}
    missing = set(_NEEDED) - here
    if missing:
        return f"no cgroup controllers {', '.join(sorted(missing))} under {_ROOT}"
    return None if os.access(_ROOT, os.W_OK) else f"{_ROOT} is read-only: run where control groups can be made"


def make(name: str) -> None:
    """Make the group in every hierarchy."""
    if _is_unified():
        (_ROOT / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in _NEEDED))
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)
    if not _is_unified():  # a new group has no processors there, and then may hold nobody
        for file in ("cpuset.cpus", "cpuset.mems"):
            (_ROOT / "cpuset" / name / file).write_text((_ROOT / "cpuset" / file).read_text())


def remove(name: str) -> None:
    """Remove the group and all in it, once their last processes have ended.

    Where version 1 has version 2 beside it for keeping track, runc makes groups there, too.
    """
    for hierarchy in {*_hierarchies(), *_ROOT.glob("unified")}:
        wait_until(lambda top=hierarchy / name: _is_removed(top), f"the control group {hierarchy / name} is empty")


def _is_removed(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            return False
    return True


def _hierarchies() -> list[Path]:
    if _is_unified():
        return [_ROOT]
    return [each for each in _ROOT.iterdir() if each.is_dir() and not each.is_symlink() and each.name != "unified"]


def _is_unified() -> bool:
    return (_ROOT / "cgroup.controllers").exists()
