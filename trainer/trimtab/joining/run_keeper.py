"""What ``trimtab run`` does for a run's directory, done by rank 0 where another launcher has started the ranks."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType

from trimtab_api.trainingjob import TrainingJob

from trimtab.plan_names import plan_of
from trimtab.records.result import RunResult
from trimtab.records.run_directory import RunDirectory


class RunKeeper:
    """Holds the run's directory from the start to the process's end, and writes there how the run ended.

    It has failed where the script ends with an exception that nothing caught, and was interrupted where that is
    KeyboardInterrupt or SIGTERM comes. What ``sys.exit(1)`` means is the script's own: it counts as an end like others.
    """

    def __init__(self, directory: RunDirectory) -> None:
        """Raises `UserError` where another run uses the directory, or it cannot be written."""
        self._directory, self._began = directory, time.monotonic()
        self._plan: str | None = None
        self._ending = "succeeded", ""
        self._holding = contextlib.ExitStack()
        self._holding.enter_context(directory.held())
        directory.prepare()

    def begin(self, job: TrainingJob) -> None:
        """Write down the job, and from now on how its run ends."""
        self._directory.write_job(job)
        self._directory.tell_starting("all ranks have met")
        self._plan = plan_of(job)
        self._said_before, sys.excepthook = sys.excepthook, self._raised
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)
        atexit.register(self.close)

    def write(self) -> None:
        """Write down how the run has ended, as far as is known."""
        if self._plan is not None:
            self._directory.write_result(RunResult.of(*self._ending, plan=self._plan, began=self._began))

    def close(self) -> None:
        """Write down the end, and let go of the directory."""
        self.write()
        self._holding.close()
        self._plan = None

    def _raised(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            self._ending = "interrupted", "stopped by Ctrl-C"
        else:
            self._ending = "failed", f"rank 0 ended with {kind.__name__}: {error}"
        self._said_before(kind, error, trace)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        """Die of the signal all the same, as whoever sent it expects."""
        self._ending = "interrupted", "stopped by SIGTERM, which its launcher sends when another rank has failed"
        self.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
