"""The logs of a run's processes, and the last lines of each: log files here, a container's log in a pod.

Each process prints to a pipe, so that a file that cannot be written does not end it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from trimtab.launch.processes.children import label
from trimtab.run_files.layout import RunDirectory, best_effort

#: Lines that tell how a process failed.
NUM_LAST_LINES = 12
#: Bytes that are read from a pipe at once.
CHUNK_BYTES = 1 << 16


class ProcessLogs(Protocol):
    """The output of processes; `LogFiles` and `LogForwarder` keep it."""

    def output(self, name: str) -> AbstractContextManager[int]:
        """Give the file descriptor that the process called ``name`` is to print to."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait for at most ``seconds``, and keep what is printed meanwhile."""
        ...

    def drain(self, seconds: float) -> None:
        """Keep what is printed until all processes have ended; for at most ``seconds``."""
        ...

    def last_lines(self, name: str) -> list[str]:
        """Return the last `NUM_LAST_LINES` lines that the process printed, without empty ones."""
        ...

    def introduce(self, name: str) -> str:
        """Return half a sentence before the last lines of a process, if it printed any: where the rest is."""
        ...


class PipedOutput(ABC):
    """One pipe for each process that prints; `wait` reads them all. Leaving the context closes them."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for key in list(self._selector.get_map().values()):
            self._close(key)
        self._selector.close()

    @contextlib.contextmanager
    def output(self, name: str) -> Iterator[int]:
        """Give the writing end of the process's pipe."""
        self._begin(name)
        reader, writer = os.pipe()
        self._selector.register(reader, selectors.EVENT_READ, name)
        try:
            yield writer
        finally:
            os.close(writer)

    def wait(self, seconds: float) -> None:
        """Take what is printed; returns at once when something was, else after ``seconds``."""
        if not self._selector.get_map():
            time.sleep(seconds)
            return
        for key, _ in self._selector.select(seconds):
            chunk = os.read(key.fd, CHUNK_BYTES)
            if chunk:
                self._take(key.data, chunk)
            else:
                self._close(key)

    def drain(self, seconds: float) -> None:
        """Take what is printed until every pipe is closed; for at most ``seconds``, as a grandchild may hold one."""
        deadline = time.monotonic() + seconds
        while self._selector.get_map() and time.monotonic() < deadline:
            self.wait(max(0.0, deadline - time.monotonic()))

    @abstractmethod
    def _begin(self, name: str) -> None:
        """Note that a process is about to print."""

    @abstractmethod
    def _take(self, name: str, chunk: bytes) -> None:
        """Take what a process has printed."""

    @abstractmethod
    def _end(self, name: str) -> None:
        """Note that a process prints no more."""

    def _close(self, key: selectors.SelectorKey) -> None:
        self._end(key.data)
        self._selector.unregister(key.fd)
        os.close(key.fd)


class LogFiles(PipedOutput):
    """A file for each process in the run directory. Where it cannot be written, the process goes on all the same."""

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__()
        self._directory = directory
        self._files: dict[str, int] = {}

    def last_lines(self, name: str) -> list[str]:
        """Return the last lines of the process's file."""
        try:
            log = self._directory.log(name).read_text(errors="replace")
        except OSError:
            return []
        return [line for line in log.splitlines() if line.strip()][-NUM_LAST_LINES:]

    def introduce(self, name: str) -> str:
        """Say where the file is."""
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


class LogForwarder(PipedOutput):
    """The log of a pod: a `ProcessLogs`."""

    def __init__(self, output: BinaryIO, *, named: bool) -> None:
        """Write to ``output``; ``named``: before each line the process that printed it, for where several do."""
        super().__init__()
        self._output = output
        self._named = named
        self._unfinished: dict[str, bytes] = {}
        self._last: dict[str, deque[bytes]] = {}

    def wait(self, seconds: float) -> None:
        """Forward what is printed; returns at once when something was, else after ``seconds``."""
        super().wait(seconds)
        self._output.flush()

    def last_lines(self, name: str) -> list[str]:
        """Return the last lines that a process printed, whether or not it ended the last of them."""
        lines = [*self._last[name], self._unfinished[name]]
        return [line.decode(errors="replace").rstrip() for line in lines if line.strip()]

    def introduce(self, name: str) -> str:
        """Return nothing where the process printed nothing: the container's log has no more of it."""
        return "it last said" if self.last_lines(name) else ""

    def _begin(self, name: str) -> None:
        self._last[name] = deque(maxlen=NUM_LAST_LINES)
        self._unfinished[name] = b""

    def _take(self, name: str, chunk: bytes) -> None:
        *lines, self._unfinished[name] = (self._unfinished[name] + chunk).split(b"\n")
        for line in lines:
            self._write(name, line)
        if len(self._unfinished[name]) > CHUNK_BYTES:  # a line without end is forwarded in pieces
            self._write(name, self._unfinished[name])
            self._unfinished[name] = b""

    def _write(self, name: str, line: bytes) -> None:
        self._last[name].append(line)
        self._output.write((f"[{label(name)}] ".encode() if self._named else b"") + line + b"\n")

    def _end(self, name: str) -> None:
        if self._unfinished[name]:
            self._write(name, self._unfinished[name])
            self._unfinished[name] = b""
