"""Where a run's processes print, and the last lines of each: log files here, a container's log in a pod."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from trimtab.records.run_directory import RunDirectory

#: Lines that tell how a process failed.
NUM_LAST_LINES = 12


class ProcessLogs(Protocol):
    """What processes print; `LogFiles` and `trimtab.launch.log_forwarding.LogForwarder` keep it."""

    def output(self, name: str) -> AbstractContextManager[int]:
        """Within, the file descriptor that the process called ``name`` is to print to."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait for at most ``seconds``, and keep what is printed meanwhile."""
        ...

    def last_lines(self, name: str) -> list[str]:
        """The last `NUM_LAST_LINES` lines that the process printed; empty lines are left out."""
        ...

    def introduce(self, name: str) -> str:
        """Half a sentence before the last lines of a process, where it printed any; it says where the rest is."""
        ...


class LogFiles:
    """A file for each process in the run directory."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    @contextmanager
    def output(self, name: str) -> Iterator[int]:
        """Within, the descriptor of the process's file: what it prints follows what an earlier one of its name did."""
        with self._directory.log(name).open("ab") as log:
            yield log.fileno()

    def wait(self, seconds: float) -> None:
        """Sleep: processes write to their files themselves."""
        time.sleep(seconds)

    def last_lines(self, name: str) -> list[str]:
        """The last lines of the process's file."""
        log = self._directory.log(name).read_text(errors="replace")
        return [line for line in log.splitlines() if line.strip()][-NUM_LAST_LINES:]

    def introduce(self, name: str) -> str:
        """Where the file is."""
        log = f"its log is {self._directory.log(name)}"
        return f"{log}, and ends with" if self.last_lines(name) else f"{log} (empty)"
