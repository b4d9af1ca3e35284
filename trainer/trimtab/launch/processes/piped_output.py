"""What processes print, read from a pipe each, so that no file that cannot be written ends a process."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Self

CHUNK_BYTES = 1 << 16


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
        """Within, the writing end of the process's pipe."""
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
        """A process is about to print."""

    @abstractmethod
    def _take(self, name: str, chunk: bytes) -> None:
        """A process has printed."""

    @abstractmethod
    def _end(self, name: str) -> None:
        """A process prints no more."""

    def _close(self, key: selectors.SelectorKey) -> None:
        self._end(key.data)
        self._selector.unregister(key.fd)
        os.close(key.fd)
