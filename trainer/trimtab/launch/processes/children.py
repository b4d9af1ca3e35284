"""Child processes that never outlive the launcher, each the leader of a process group of its own.

A run's processes are called ``rank-3``, ``monitor-0``, ``status`` and ``metrics``; their logs have these names.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Protocol, Self

import psutil

from trimtab.launch.processes import reaper
from trimtab.launch.processes.interrupts import heed, is_urgent
from trimtab.launch.processes.termination import end_politely, has_gone

_PR_SET_PDEATHSIG = 1
_PR_GET_CHILD_SUBREAPER = 37
_LIBC = ctypes.CDLL(None, use_errno=True)
#: Before a command: the kernel kills it when the process that starts it ends. Not every image has setpriv.
_DIES_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
WITH_PARENT = (sys.executable, "-I", "-S", "-c", _DIES_WITH_PARENT)

#: Seconds between SIGTERM to a process and SIGKILL to its group, on a user's own machine.
GRACE_SECONDS = 5.0
#: The process that serves the run's status. It may fail; the run goes on.
STATUS = "status"
#: The process that serves the run's metrics. It may fail as well.
METRICS = "metrics"


def rank_name(rank: int) -> str:
    """Return the name of the process that trains as this rank."""
    return f"rank-{rank}"


def monitor_name(worker: int) -> str:
    """Return the name of this worker's network monitor."""
    return f"monitor-{worker}"


def is_rank(name: str) -> bool:
    """Return whether the process trains."""
    return name.startswith("rank-")


def is_monitor(name: str) -> bool:
    """Return whether the process measures the network."""
    return name.startswith("monitor-")


def kind_and_number(name: str) -> tuple[str, int]:
    """Return ``("rank", 10)`` for ``rank-10``, so that rank 2 comes before rank 10."""
    kind, _, number = name.partition("-")
    return kind, int(number or 0)


def label(name: str) -> str:
    """Return what a message to the user calls the process."""
    kind, number = kind_and_number(name)
    names = {"rank": f"rank {number}", "monitor": f"the monitor of worker {number}", METRICS: "the metrics server"}
    return names.get(kind, "the status server")


@dataclass(frozen=True)
class Exit:
    """The end of one child."""

    name: str
    code: int
    """Exit code; negative: the signal that killed it."""
    remark: str = ""
    """A remark on how it ended."""

    @property
    def how(self) -> str:
        """``exit code 1``, or ``signal SIGKILL``."""
        if self.code >= 0:
            return f"exit code {self.code}{self.remark}"
        try:
            return f"signal {signal.Signals(-self.code).name}"
        except ValueError:
            return f"signal {-self.code}"


class ChildProcess(Protocol):
    """A child of this process: a `subprocess.Popen`, or a `ForkedChild`."""

    pid: int

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code, or minus the signal that killed it."""
        ...


class ForkedChild(ChildProcess, Protocol):
    """A child that another process has forked, and that has not begun its command."""

    def release(self) -> None:
        """Let the child begin."""
        ...


Fork = Callable[[int, Callable[[float], object]], ForkedChild | None]
"""Forks a child that prints to a file descriptor; waits by the function. None: it must start otherwise."""


class Children:
    """The processes of one run. Leaving the context ends all of them, and their own children with them.

    If the launcher itself is killed, the kernel kills each child (PR_SET_PDEATHSIG), and the reaper kills the rest of
    each child's process group.
    """

    def __init__(
        self,
        grace: float = GRACE_SECONDS,
        wait: Callable[[float], object] = time.sleep,
        examine: Callable[[Exit], Exit] = lambda ended: ended,
        *,
        has_threads: bool = False,
    ) -> None:
        """Watch no process yet.

        Args:
            grace: Seconds between SIGTERM to a process and SIGKILL to its group.
            wait: Waits for so many seconds, and takes what processes print meanwhile: else one that saves may block.
            examine: Told how each child ended; returns what counts.
            has_threads: Whether this process has threads, as a trainer does: no code of ours may then run between fork
                and exec, so each child binds itself to this process. `start` is called by the main thread, since the
                kernel goes by the end of the thread that forked.
        """
        self.grace = grace
        self._has_threads = has_threads
        self._wait, self._examine = wait, examine
        self._running: dict[str, ChildProcess] = {}

    def __enter__(self) -> Self:
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it has nothing left to kill, and ends by itself
            self._reaper.wait(timeout=GRACE_SECONDS)

    def start(
        self,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        output: int,
        directory: Path | None = None,
        *,
        stdin: int = subprocess.DEVNULL,
        fork: Fork | None = None,
    ) -> None:
        """Start one process, in ``directory`` or where this one runs, printing to the file descriptor ``output``.

        Args:
            name: The name of the process.
            argv: The command line.
            environment: All variables of the process.
            output: File descriptor of its standard output and standard error.
            directory: Its working directory.
            stdin: File descriptor of its standard input.
            fork: Tried first; the arguments before it are for where it returns None.

        Raises:
            FileNotFoundError: There is no such program.
            Interrupted: A signal came, and no process was started.
        """
        heed()
        forked = fork(output, self._wait) if fork is not None else None
        process = forked or self._execute(argv, environment, output, directory, stdin)
        self._running[name] = process
        self._tell_reaper(f"+{process.pid}")
        if forked is not None:
            forked.release()

    def _execute(
        self, argv: Sequence[str], environment: Mapping[str, str], output: int, directory: Path | None, stdin: int
    ) -> ChildProcess:
        launcher = os.getpid()

        def die_with_the_launcher() -> None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != launcher:  # it died before prctl could bind us to it
                os._exit(1)

        return subprocess.Popen(
            [*WITH_PARENT, *argv] if self._has_threads else argv,
            env=dict(environment),
            cwd=directory,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=None if self._has_threads else die_with_the_launcher,
        )

    def temporary_directory(self, prefix: str) -> Path:
        """Make an empty directory for the children, which is removed when the run ends."""
        directory = Path(mkdtemp(prefix=prefix))
        self._tell_reaper(str(directory))
        return directory

    @property
    def running(self) -> set[str]:
        """Names of the children that `collect` has not returned yet."""
        return set(self._running)

    def collect(self) -> list[Exit]:
        """Return the children that ended since the last call; what is left of their process groups is killed."""
        ended = [(name, process) for name, process in self._running.items() if _has_ended(process)]
        for name, process in ended:
            self._clear(name, process)
        if _gets_orphans():
            reap_orphans()
        return [self._examine(Exit(name, process.wait())) for name, process in ended]

    def stop(self) -> None:
        """End every child: SIGTERM first (`end_politely`), and SIGKILL to each group that is left after the grace.

        A second Ctrl-C ends the wait.
        """
        ending = {name: end_politely(process.pid) for name, process in self._running.items()}
        deadline = time.monotonic() + self.grace
        for name, process in list(self._running.items()):
            while not (_has_ended(process) and all(map(has_gone, ending[name]))):
                if time.monotonic() > deadline or is_urgent():
                    break
                self._wait(0.01)
            self._clear(name, process)

    def _clear(self, name: str, process: ChildProcess) -> None:
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()
        del self._running[name]
        self._tell_reaper(f"-{process.pid}")

    def _tell_reaper(self, line: str) -> None:
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(f"{line}\n".encode())
        self._reaper.stdin.flush()


def _has_ended(process: ChildProcess) -> bool:
    """Return whether the process ended, without waiting for it: until then no other group can take its number."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # a trainer's script may wait for any child
        return True


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _gets_orphans() -> bool:
    """Return whether the kernel gives this process those below it whose parent has ended."""
    is_subreaper = ctypes.c_int()
    _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(is_subreaper), 0, 0, 0)
    return os.getpid() == 1 or bool(is_subreaper.value)


def reap_orphans() -> None:
    """Wait for children that have ended and that this process has not started itself: else they stay as zombies.

    In a container the launcher may be process 1; with a fork server it is a child subreaper. What this
    process starts is in its session, or leads one of its own.
    """
    with contextlib.suppress(ChildProcessError):
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    for child in psutil.Process().children():
        with contextlib.suppress(ChildProcessError, ProcessLookupError, psutil.Error):
            if child.status() == psutil.STATUS_ZOMBIE and os.getsid(child.pid) not in (os.getsid(0), child.pid):
                os.waitpid(child.pid, os.WNOHANG)
