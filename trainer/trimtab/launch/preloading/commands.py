"""Decides which commands a fork server can run as a fresh interpreter would. Pure but for `has_accelerator`."""

from __future__ import annotations

import glob
import sys
from collections.abc import Sequence
from dataclasses import dataclass

#: Device files of NVIDIA's and AMD's drivers.
_ACCELERATORS = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/kfd")


@dataclass(frozen=True)
class PythonCommand:
    """A script or a module, and its arguments."""

    name: str
    is_module: bool
    arguments: tuple[str, ...]


def python_command(argv: Sequence[str]) -> PythonCommand | None:
    """Return what this Python's interpreter is to run; None for other programs and for other options than ``-u``."""
    if not argv or argv[0] != sys.executable:
        return None
    words = list(argv[1:])
    while words and words[0] == "-u":  # ranks do not buffer their output in any case
        del words[0]
    if len(words) > 1 and words[0] == "-m":
        return PythonCommand(words[1], True, tuple(words[2:]))
    if words and words[0].endswith(".py") and not words[0].startswith("-"):
        return PythonCommand(words[0], False, tuple(words[1:]))
    return None


def has_accelerator() -> bool:
    """Return whether a GPU is here. A process that has asked CUDA for its devices must not fork."""
    return any(map(glob.glob, _ACCELERATORS))
