"""How a run ended, and on what machine: ``result.json``."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil


@dataclass(frozen=True)
class RunResult:
    """How a run ended: ``result.json``."""

    state: str
    """``succeeded``, ``target``, ``failed``, ``deadline`` or ``interrupted``."""
    message: str
    """Why it did not succeed: which process, how, and the last lines of its log."""
    plan: str
    emulated: bool
    relay: dict[str, Any] | None
    """What the emulator's relay says of itself; None on loopback."""
    wall_seconds: float
    machine: dict[str, Any]
    restarts: int = 0
    """How often all ranks had been restarted together; a pod is one attempt, and its job's status counts them."""

    @property
    def valid(self) -> bool:
        """Whether its times can be trusted: the relay kept up. On loopback there is no relay to fall behind."""
        return self.relay is None or bool(self.relay["valid"])

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "valid": self.valid}


def describe_machine() -> dict[str, Any]:
    """What a reader needs to judge the times of a run."""
    return {
        "python": platform.python_version(),
        "torch": _version("torch"),
        "trimtab": _version("trimtab"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
