"""Runs the processes of one attempt, on this machine or in a pod: starts them, watches them, says which one failed.

The local launcher (`trimtab.launch.local.run`) and a pod's worker (`trimtab.launch.pod.worker`) decide what is started
and where; what becomes of it is the same for both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from trimtab.launch.processes.children import (
    GRACE_SECONDS,
    STATUS,
    Children,
    Exit,
    Fork,
    is_monitor,
    is_rank,
    label,
)
from trimtab.launch.processes.interrupts import Interrupted, has_come, heed
from trimtab.launch.processes.logs import ProcessLogs
from trimtab.launch.processes.monitor_restarts import MISTAKE, MonitorRestarts
from trimtab.launch.processes.root_cause import await_root_cause, root_cause
from trimtab.launch.processes.trainer_command import Process
from trimtab.run_files.layout import RunDirectory

#: Seconds that the status server has to tell its watchers how the run ended.
FAREWELL_SECONDS = 5.0
#: Seconds to wait for the last lines of processes that have ended.
DRAIN_SECONDS = 1.0
#: Said of a rank that failed, though its command's exit code was 0.
_HIDDEN = (
    ", which its command hid (a pipe such as `| tee` needs `set -o pipefail`; before os._exit(0), call session.close())"
)


@dataclass(frozen=True)
class Ending:
    """The end of an attempt."""

    state: str
    """A state of `trimtab.run_files.result.RunResult`."""
    message: str = ""
    failed: tuple[Exit, ...] = ()
    """The processes that failed, where all ranks may be restarted for it; `describe_failure` makes the message."""


class Supervisor:
    """The processes of one attempt. Leaving the context ends all of them."""

    def __init__(
        self,
        directory: RunDirectory,
        logs: ProcessLogs,
        poll_seconds: float,
        grace: float = GRACE_SECONDS,
        grace_when_interrupted: float | None = None,
    ) -> None:
        """Keep the processes' records in ``directory`` and their output in ``logs``.

        Args:
            directory: The run directory.
            logs: Where the processes print to.
            poll_seconds: Between two looks at the processes.
            grace: Seconds from SIGTERM to SIGKILL, as where one process failed and ends the others.
            grace_when_interrupted: The same where the launcher itself was told to end; None: as ``grace``.
        """
        self.children = Children(grace, logs.wait, self._examine)
        self._grace_when_interrupted = grace if grace_when_interrupted is None else grace_when_interrupted
        self._directory, self._logs, self._poll_seconds = directory, logs, poll_seconds
        self._monitors: dict[str, Process] = {}
        self._restarts = MonitorRestarts()

    def __enter__(self) -> Self:
        self.children.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Interrupted):
            self.children.grace = self._grace_when_interrupted
        self.children.__exit__(kind, error, trace)
        self._logs.drain(DRAIN_SECONDS)

    def start(self, name: str, process: Process, fork: Fork | None = None) -> None:
        """Start a rank or a monitor, by ``fork`` if that can do it.

        Raises:
            FileNotFoundError: There is no such program.
            Interrupted: A signal came.
        """
        self._directory.unfinished(name).unlink(missing_ok=True)  # of an attempt that was killed
        with self._logs.output(name) as output:
            self.children.start(name, process.argv, process.environment, output, process.directory, fork=fork)
        if is_monitor(name):
            self._monitors[name] = process
            self._restarts.started(name, time.monotonic())

    def _examine(self, ended: Exit) -> Exit:
        """Count a rank as failed whose command succeeded, but that has not come to its end."""
        if ended.code != 0 or not self._directory.unfinished(ended.name).exists():
            return ended
        return replace(ended, code=1, remark=_HIDDEN)

    def wait(self, check: Callable[[Sequence[Exit]], Ending | None]) -> Ending:
        """Wait until all ranks have succeeded, a process has failed, or ``check`` ends the attempt.

        A monitor that ends is started again, after a pause that grows. It has failed only if it names a mistake of the
        user's before the first step.

        Args:
            check: Called at every look with the processes that ended since the last; what it returns comes before
                their own failures.

        Raises:
            Interrupted: A signal came.
        """
        while any(map(is_rank, self.children.running)):
            self._pause()
            ended = self.children.collect()
            if (ending := check(ended)) is not None:
                return ending
            if failed := list(filter(self._has_failed, ended)):
                all_failed = await_root_cause(failed, self._last_lines, self.children, self._pause, self._has_failed)
                return Ending("failed", failed=tuple(all_failed))
            self._restart_monitors(ended)
        return Ending("succeeded")

    def _has_failed(self, ended: Exit) -> bool:
        if is_monitor(ended.name):
            return ended.code == MISTAKE and not self._directory.started.exists()
        return has_failed(ended)

    def _restart_monitors(self, ended: Sequence[Exit]) -> None:
        """Plan restarts of the monitors among those that ended, and start those whose pause is over."""
        now = time.monotonic()
        for monitor in ended:
            if is_monitor(monitor.name):
                sentence = self._restarts.ended(monitor, now)
                with self._logs.output(monitor.name) as output:
                    os.write(output, f"{sentence}\n".encode())
        for name in self._restarts.take_due(now):
            self.start(name, self._monitors[name])

    def let_status_tell(self) -> None:
        """Wait until the status server has told how the run ended, for at most `FAREWELL_SECONDS`."""
        deadline = time.monotonic() + FAREWELL_SECONDS
        while STATUS in self.children.running and time.monotonic() < deadline and not has_come():
            self.children.collect()
            time.sleep(self._poll_seconds)

    def _last_lines(self, name: str) -> list[str]:
        self._logs.wait(0.0)  # what a process printed right before its end may still be in its pipe
        return self._logs.last_lines(name)

    def _pause(self) -> None:
        self._logs.wait(self._poll_seconds)
        heed()


def has_failed(ended: Exit) -> bool:
    """Return whether this is a failure of training, which needs neither monitors nor the servers beside it."""
    return is_rank(ended.name) and ended.code != 0


def describe_failure(failed: Sequence[Exit], logs: ProcessLogs, remark: str = "") -> str:
    """Say which process failed, how, and its last lines; of several processes, the root cause.

    ``remark`` goes after how it failed.
    """
    first = root_cause(failed, logs.last_lines)
    head = f"{label(first.name)} ended with {first.how}{remark}"
    introduction = logs.introduce(first.name)
    lines = [f"    {line}" for line in logs.last_lines(first.name)]
    return "\n".join([f"{head}; {introduction}" if introduction else head, *lines])
