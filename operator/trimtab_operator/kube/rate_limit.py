"""A limit on the operator's requests: a defect, or a thousand jobs at once, must not flood the API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from trimtab_api.throttling import TokenBucket


class RateLimit:
    """A limit of so many turns a second on average, and up to ``burst`` at once.

    Many threads may call it.
    """

    def __init__(
        self,
        per_second: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._turns = TokenBucket(burst, per_second, filled_at=clock())
        """Fewer than none are left while callers wait."""

    def wait(self) -> None:
        """Wait for a turn; callers get theirs in the order in which they ask."""
        with self._lock:
            now = self._clock()
            self._turns.spend(1, now)
            seconds = self._turns.seconds_to_level(0, now)
        if seconds > 0:
            self._sleep(seconds)
