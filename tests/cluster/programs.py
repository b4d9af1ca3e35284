"""Programs that tests start: each with a log of its own, none of them outliving the tests."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class Program:
    """One running program; it dies with the thread that started it."""

    def __init__(self, argv: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [str(each) for each in argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def stop(self, timeout: float = 30.0) -> int:
        """SIGTERM, then SIGKILL when the time is up; returns the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """SIGKILL; returns the exit code."""
        self.process.kill()
        return self.process.wait()

    def last_lines(self, count: int = 30) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


def wait_until(
    condition: Callable[[], object], what: str | Callable[[], str], seconds: float = 60.0, interval: float = 0.05
) -> None:
    """Wait for a condition; raises TimeoutError naming what did not come to pass."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(interval)
