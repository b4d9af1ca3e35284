"""Writes one checkpoint at a time beside training, at a bounded rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

#: Most bytes a second that one process writes: what crosses to a store takes the network from gradients.
BYTES_PER_SECOND = 200e6

#: Waits for so many seconds; returns False once nobody waits any more.
Wait = Callable[[float], bool]
#: Writes a checkpoint; it is given what waits, and what it calls after each file with the file's bytes.
Write = Callable[[Wait, Callable[[int], None]], None]


class BackgroundWriter:
    """One thread that writes; at most one write is under way.

    The thread starts before training does. CPython waits without end for a thread that runs out of memory while it
    starts, and so would training.
    """

    def __init__(self, *, bytes_per_second: float = BYTES_PER_SECOND) -> None:
        self._rate = bytes_per_second
        self._writes: SimpleQueue[Write | None] = SimpleQueue()
        self._is_idle, self._is_given_up = threading.Event(), threading.Event()
        self._is_idle.set()
        self.problem: str | None = None
        """Why the last write failed, for people; None if it did not."""
        self.num_bytes = 0
        """Bytes that the present or last write has written."""
        self.seconds = 0.0
        """Seconds that the last write took."""
        threading.Thread(target=self._serve, name="trimtab-checkpoint", daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """True while a write is under way."""
        return not self._is_idle.is_set()

    def begin(self, write: Write) -> None:
        """Begin ``write`` beside training; none may be under way, and the writer is not closed."""
        assert not self.is_busy, "one checkpoint is written at a time"
        self._is_idle.clear()
        self._writes.put(write)

    def wait(self, seconds: float) -> bool:
        """Wait until no write is under way; return whether that came within ``seconds``."""
        return self._is_idle.wait(seconds)

    def close(self, seconds: float) -> bool:
        """Wait as `wait` does, give up what is still under way, and end the thread; return whether it was finished."""
        is_finished = self.wait(seconds)
        if not is_finished:
            self._is_given_up.set()
            self.wait(1.0)
        self._writes.put(None)
        return is_finished

    def _serve(self) -> None:
        while (write := self._writes.get()) is not None:
            self._run(write)
            del write  # it holds copies of all tensors
            self._is_idle.set()

    def _run(self, write: Write) -> None:
        began, self.num_bytes = time.monotonic(), 0
        try:
            write(lambda seconds: not self._is_given_up.wait(seconds), self._pace)
            self.problem = None
        except Exception as error:  # a store may raise anything, and training goes on
            self.problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        self.seconds = time.monotonic() - began

    def _pace(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes
        if self._is_given_up.wait(num_bytes / self._rate):
            raise InterruptedError("given up, since the process ends")
