"""How often one job may cost something: a burst, then so much in a while."""

from __future__ import annotations


class TokenBucket:
    """Holds ``size`` tokens when full and gains one in ``seconds_per_token``. Times are seconds by any one clock."""

    def __init__(self, size: int, seconds_per_token: float) -> None:
        self._size = size
        self._seconds_per_token = seconds_per_token
        self._tokens = float(size)
        self._filled_at: float | None = None

    def seconds_to_token(self, now: float) -> float:
        """Seconds until there is one to take, 0 if there is."""
        self._fill(now)
        return max(0.0, 1.0 - self._tokens) * self._seconds_per_token

    def take(self, now: float) -> bool:
        """Take a token; whether there was one."""
        if self.seconds_to_token(now) > 0:
            return False
        self._tokens -= 1.0
        return True

    def _fill(self, now: float) -> None:
        gained = 0.0 if self._filled_at is None else max(0.0, now - self._filled_at) / self._seconds_per_token
        self._tokens = min(float(self._size), self._tokens + gained)
        self._filled_at = now
