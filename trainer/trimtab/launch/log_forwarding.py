"""Forwards what a worker's processes print to the container's log, and keeps the last lines of each."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Self

from trimtab.launch.process_logs import NUM_LAST_LINES
from trimtab.launch.process_names import label

_CHUNK_BYTES = 1 << 16


class LogForwarder:
    """One pipe for each process that prints; `wait` reads them all. The log of a pod: a `ProcessLogs`."""

    def __init__(self, output: BinaryIO, *, named: bool) -> None:
        """``named``: write before each line which process printed it, for where several do."""
        self._output = output
        self._named = named
        self._selector = selectors.DefaultSelector()
        self._unfinished: dict[str, bytes] = {}
        self._last: dict[str, deque[bytes]] = {}

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
        """Within, the writing end of the process's pipe."""
        reader, writer = os.pipe()
        self._last[name] = deque(maxlen=NUM_LAST_LINES)
        self._unfinished[name] = b""
        self._selector.register(reader, selectors.EVENT_READ, name)
        try:
            yield writer
        finally:
            os.close(writer)

    def wait(self, seconds: float) -> None:
        """Forward what is printed; returns at once when something was, else after ``seconds``."""
        if not self._selector.get_map():
            time.sleep(seconds)
            return
        for key, _ in self._selector.select(seconds):
            chunk = os.read(key.fd, _CHUNK_BYTES)
            if chunk:
                self._take(key.data, chunk)
            else:
                self._close(key)
        self._output.flush()

    def drain(self, seconds: float) -> None:
        """Forward until every pipe is closed; for at most ``seconds``, since a grandchild may hold a pipe open."""
        deadline = time.monotonic() + seconds
        while self._selector.get_map() and time.monotonic() < deadline:
            self.wait(max(0.0, deadline - time.monotonic()))

    def last_lines(self, name: str) -> list[str]:
        """The last lines that a process printed, whether or not it ended the last of them."""
        lines = [*self._last[name], self._unfinished[name]]
        return [line.decode(errors="replace").rstrip() for line in lines if line.strip()]

    def introduce(self, name: str) -> str:
        """Nothing where the process printed nothing: the container's log has no more of it."""
        return "it last said" if self.last_lines(name) else ""

    def _take(self, name: str, chunk: bytes) -> None:
        *lines, self._unfinished[name] = (self._unfinished[name] + chunk).split(b"\n")
        for line in lines:
            self._write(name, line)
        if len(self._unfinished[name]) > _CHUNK_BYTES:  # a line without end is forwarded in pieces
            self._write(name, self._unfinished[name])
            self._unfinished[name] = b""

    def _write(self, name: str, line: bytes) -> None:
        self._last[name].append(line)
        self._output.write((f"[{label(name)}] ".encode() if self._named else b"") + line + b"\n")

    def _close(self, key: selectors.SelectorKey) -> None:
        if self._unfinished[key.data]:
            self._write(key.data, self._unfinished[key.data])
            self._unfinished[key.data] = b""
        self._selector.unregister(key.fd)
        os.close(key.fd)
