"""Limits how many requests the operator makes: a defect, or a thousand jobs at once, must not fill the API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RateLimit:
    """Hands out turns: so many a second on average, and up to ``burst`` at once. Many threads may call it."""

    def __init__(
        self,
        per_second: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._turns = float(burst)
        """Turns that are left; less than zero: so many callers wait."""
        self._counted_at = clock()

    def wait(self) -> None:
        """Wait for a turn; callers get theirs in the order in which they ask."""
        with self._lock:
            now = self._clock()
            self._turns = min(self._burst, self._turns + (now - self._counted_at) * self._per_second) - 1.0
            self._counted_at = now
            seconds = -self._turns / self._per_second
        if seconds > 0:
            self._sleep(seconds)
