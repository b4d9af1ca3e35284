"""Watches how a script ends that another launcher has started, and writes down how its run ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType, TracebackType

from trimtab_api.trainingjob import TrainingJob

from trimtab.launch.environment.launchers import torchrun_job
from trimtab.plan.names import plan_of
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.run_lifecycle import RunLifecycle


class ScriptEnding:
    """Holds the run's directory until the run ends, and writes there how it ended.

    It has failed where the script ends with an exception that nothing caught, and was interrupted where that is
    KeyboardInterrupt or SIGTERM comes. What ``sys.exit(1)`` means is the script's own: it counts as an end like others.
    """

    def __init__(self, directory: RunDirectory, job: TrainingJob) -> None:
        """Write down the job, and watch for how its run ends.

        Raises:
            UserError: Another run uses the directory, or it cannot be written.
        """
        self._process = os.getpid()
        """Number of this process; a child that it forks inherits its handlers, and must not act by them."""
        self._ending = "succeeded", ""
        self._is_closing = False
        self._to_die_of: int | None = None
        """A signal that has come, once how the run ended is written."""
        self._holding = contextlib.ExitStack()
        self._holding.enter_context(directory.held())
        self._lifecycle = RunLifecycle(directory, plan_of(job))
        self._num_restarts = self._lifecycle.prepare(job, torchrun_job(os.environ))
        self._lifecycle.starting("all ranks have met")
        self._said_before, sys.excepthook = sys.excepthook, self._raised
        self._holding.callback(self._let_go_of_exceptions)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)
            self._holding.callback(signal.signal, signal.SIGTERM, signal.SIG_DFL)
        self._holding.callback(self._write)  # before a SIGTERM, which a launcher sends all ranks, is deadly again

    def close(self) -> None:
        """Write down how the run ended, and let go of the directory."""
        if os.getpid() != self._process:
            return
        self._is_closing = True
        self._holding.close()
        if self._to_die_of is not None:
            os.kill(os.getpid(), self._to_die_of)

    def _write(self) -> None:
        self._lifecycle.finish(*self._ending, restarts=self._num_restarts)

    def _let_go_of_exceptions(self) -> None:
        if sys.excepthook == self._raised:  # else another hook calls it, and must go on calling the one before
            sys.excepthook = self._said_before

    def _raised(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            self._ending = "interrupted", "stopped by Ctrl-C"
        else:
            self._ending = "failed", f"rank 0 ended with {kind.__name__}: {error}"
        self._said_before(kind, error, trace)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        """Die of the signal all the same, as whoever sent it expects."""
        if os.getpid() != self._process:  # a helper that its parent ends, such as a worker of a pool
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._to_die_of = number
        if self._ending[0] == "succeeded":  # else the cause is known: rank 0 has ended as another rank did
            self._ending = "interrupted", "stopped by SIGTERM, which its launcher sends when another rank has failed"
        if not self._is_closing:
            self.close()
