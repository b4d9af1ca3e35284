"""Where a run's processes print, and the last lines of each: log files here, a container's log in a pod."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Protocol

from trimtab.launch.processes.piped_output import PipedOutput
from trimtab.run_files.best_effort import best_effort
from trimtab.run_files.layout import RunDirectory

#: Lines that tell how a process failed.
NUM_LAST_LINES = 12


class ProcessLogs(Protocol):
    """What processes print; `LogFiles` and `trimtab.launch.processes.log_forwarding.LogForwarder` keep it."""

    def output(self, name: str) -> AbstractContextManager[int]:
        """Within, the file descriptor that the process called ``name`` is to print to."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait for at most ``seconds``, and keep what is printed meanwhile."""
        ...

    def drain(self, seconds: float) -> None:
        """Keep what is printed until all processes have ended; for at most ``seconds``."""
        ...

    def last_lines(self, name: str) -> list[str]:
        """The last `NUM_LAST_LINES` lines that the process printed; empty lines are left out."""
        ...

    def introduce(self, name: str) -> str:
        """Half a sentence before the last lines of a process, where it printed any; it says where the rest is."""
        ...


class LogFiles(PipedOutput):
    """A file for each process in the run directory. Where it cannot be written, the process goes on all the same."""

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__()
        self._directory = directory
        self._files: dict[str, int] = {}

    def last_lines(self, name: str) -> list[str]:
        """The last lines of the process's file."""
        try:
            log = self._directory.log(name).read_text(errors="replace")
        except OSError:
            return []
        return [line for line in log.splitlines() if line.strip()][-NUM_LAST_LINES:]

    def introduce(self, name: str) -> str:
        """Where the file is."""
        log = f"its log is {self._directory.log(name)}"
        return f"{log}, and ends with" if self.last_lines(name) else f"{log} (empty)"

    def _begin(self, name: str) -> None:
        with best_effort(self._directory.path):
            if name not in self._files:  # what it prints follows what an earlier process of its name did
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._files[name] = os.open(self._directory.log(name), flags, 0o666)

    def _take(self, name: str, chunk: bytes) -> None:
        with best_effort(self._directory.path):
            while name in self._files and chunk:
                chunk = chunk[os.write(self._files[name], chunk) :]

    def _end(self, name: str) -> None:
        num_printing = sum(key.data == name for key in self._selector.get_map().values())
        if name in self._files and num_printing == 1:
            os.close(self._files.pop(name))
