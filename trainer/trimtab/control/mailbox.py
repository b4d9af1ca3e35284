"""A mailbox between two threads: at most one message, which stays until it is taken."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Holds one message. Every method may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._message: T | None = None

    def put(self, message: T) -> None:
        """Leave a message, in place of one that nobody has taken."""
        with self._lock:
            self._message = message

    def look(self) -> T | None:
        """Return the message, which stays; None if there is none."""
        with self._lock:
            return self._message

    def take(self, message: T | None) -> None:
        """Remove ``message``, unless another has come in its place."""
        with self._lock:
            if self._message is message:
                self._message = None

    def clear(self) -> None:
        """Remove whatever there is."""
        with self._lock:
            self._message = None
