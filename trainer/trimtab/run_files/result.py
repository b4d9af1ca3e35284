"""The result of a run, and its machine: ``result.json``, which its launcher writes last."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

#: States of a run that did what was asked of it.
SUCCESS_STATES = ("succeeded", "target")


@dataclass(frozen=True)
class RunResult:
    """The end of a run: ``result.json``."""

    state: str
    """``succeeded``, ``target``, ``failed``, ``deadline`` or ``interrupted``."""
    message: str
    """The reason for the failure: which process, how, and the last lines of its log."""
    plan: str
    emulated: bool
    relay: dict[str, Any] | None
    """The report of the emulator's relay on its own delays; None on loopback."""
    wall_seconds: float
    machine: dict[str, Any]
    restarts: int = 0
    """Number of restarts of all ranks; 0 in a pod, which is one attempt: the job's status counts those."""

    @property
    def is_success(self) -> bool:
        """True if the run did what was asked of it."""
        return self.state in SUCCESS_STATES

    @classmethod
    def of(
        cls,
        state: str,
        message: str,
        *,
        plan: str,
        began: float,
        emulated: bool = False,
        relay: dict[str, Any] | None = None,
        restarts: int = 0,
    ) -> RunResult:
        """Return the result of a run on this machine that ends now; `time.monotonic` was ``began`` at its start."""
        seconds = time.monotonic() - began
        return cls(state, message, plan, emulated, relay, seconds, describe_machine(), restarts)

    @property
    def valid(self) -> bool:
        """True if its times can be trusted, because the relay kept up; on loopback there is no relay."""
        return self.relay is None or bool(self.relay["valid"])

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**vars(self), "valid": self.valid}


def describe_machine() -> dict[str, Any]:
    """Return what a reader needs to judge the times of a run."""
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
