"""Records of a run as a whole, by its launcher or by rank 0 in place of one: the job first, the result last."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import psutil

from trimtab.run_files.layout import RunDirectory, best_effort
from trimtab.run_files.schema import RunResult

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob


class RunLifecycle:
    """A run in its directory, which the caller holds (`RunDirectory.held`)."""

    def __init__(self, directory: RunDirectory, plan: str, *, emulated: bool = False) -> None:
        """Let the run begin now.

        Args:
            directory: Where it is recorded.
            plan: Name of its plan in tables.
            emulated: Whether its network is emulated.
        """
        self._directory, self._plan, self._emulated = directory, plan, emulated
        self.began = time.monotonic()
        """Start of the run, by `time.monotonic`."""

    def prepare(self, job: TrainingJob, launcher: str = "") -> int:
        """Prepare the directory for a run, or for a further attempt of the same launcher's, and write down the job.

        Args:
            job: What is run.
            launcher: Names the launcher of all attempts; empty where each attempt is a run.

        Returns:
            The number of attempts that went before.

        Raises:
            UserError: The directory cannot be written.
        """
        num_before = self._directory.prepare_attempt(launcher)
        self._directory.write_job(job)
        return num_before

    def starting(self, sentence: str) -> None:
        """Write down what is being done before the first step."""
        with best_effort(self._directory.path):
            self._directory.tell_starting(sentence)

    def finish(self, state: str, message: str, *, restarts: int = 0, relay: dict[str, Any] | None = None) -> RunResult:
        """Write down how the run ended, where the status server and `trimtab report` read it.

        Args:
            state: As in `RunResult`.
            message: Why it did not succeed.
            restarts: How often all ranks were restarted together.
            relay: The report of the emulator's relay.
        """
        result = RunResult(
            state=state,
            message=message,
            plan=self._plan,
            emulated=self._emulated,
            relay=relay,
            wall_seconds=time.monotonic() - self.began,
            machine=_describe_machine(),
            restarts=restarts,
            valid=relay is None or bool(relay["valid"]),
        )
        with best_effort(self._directory.path):
            self._directory.write_result(result)
        return result


def _describe_machine() -> dict[str, Any]:
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
