"""Writes one checkpoint at a time beside training, at a bounded rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Most bytes a second that one process writes: what crosses to a store takes the network from gradients.
BYTES_PER_SECOND = 200e6

#: Waits for so many seconds; returns False once nobody waits any more.
Wait = Callable[[float], bool]
#: Writes a checkpoint; it is given what waits, and what it calls after each file with the file's bytes.
Write = Callable[[Wait, Callable[[int], None]], None]


class BackgroundWriter:
    """A thread for each write; at most one is under way."""

    def __init__(self, *, bytes_per_second: float = BYTES_PER_SECOND) -> None:
        self._rate = bytes_per_second
        self._thread: threading.Thread | None = None
        self._is_given_up = threading.Event()
        self.problem: str | None = None
        """Why the last write failed, for people; None if it did not."""
        self.num_bytes = 0
        """Bytes that the present or last write has written."""
        self.seconds = 0.0
        """Seconds that the last write took."""

    @property
    def is_busy(self) -> bool:
        """True while a write is under way."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, write: Write) -> None:
        """Begin ``write`` on a thread of its own; none may be under way."""
        assert not self.is_busy, "one checkpoint is written at a time"
        self._thread = threading.Thread(target=self._run, args=(write,), name="trimtab-checkpoint", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait until no write is under way; return whether that came within ``seconds``."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.is_busy

    def close(self, seconds: float) -> bool:
        """Wait as `wait` does, and then give up what is still under way; return whether it was finished."""
        if self.wait(seconds):
            return True
        self._is_given_up.set()
        self.wait(1.0)
        return False

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
