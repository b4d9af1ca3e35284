"""Limits on how often something may happen: delays that grow, and budgets that refill. Pure: times go in."""

from __future__ import annotations

from dataclasses import dataclass

#: Failures after which a delay grows no further, whatever its bound: larger powers would overflow.
_MOST_DOUBLED = 64


@dataclass(frozen=True)
class Backoff:
    """Exponential back-off: after each failure in a row the delay grows by ``factor``, up to ``longest``."""

    first: float
    """Delay after the first failure, seconds."""
    longest: float
    """Seconds."""
    factor: float = 2.0

    def delay(self, num_before: int) -> float:
        """Return the seconds to wait after a failure that followed ``num_before`` others in a row."""
        return min(self.longest, self.first * self.factor ** min(num_before, _MOST_DOUBLED))


class TokenBucket:
    """Tokens that refill at a steady rate up to a capacity. Times are seconds by any one clock.

    If the clock is set back, the bucket neither gains nor loses tokens, and refills from there on.
    """

    def __init__(self, capacity: float, refill: float, period: float = 1.0, filled_at: float = float("-inf")) -> None:
        """Start full.

        Args:
            capacity: Most tokens.
            refill: Tokens that are added in each ``period``, evenly.
            period: Seconds.
            filled_at: Taken for the time of the last `spend`.
        """
        self.capacity = float(capacity)
        self.tokens = self.capacity
        """Tokens after the last call of `spend`; less than zero if more were spent than there were."""
        self.spent_at = filled_at
        """When `spend` was last called."""
        self._refill = refill
        self._period = period

    def level(self, now: float) -> float:
        """Return the tokens that are there at a time."""
        self.spent_at = min(self.spent_at, now)
        return min(self.capacity, self.tokens + (now - self.spent_at) * self._refill / self._period)

    def seconds_to_level(self, level: float, now: float) -> float:
        """Return the seconds until there are so many tokens; 0 if there are."""
        return max(0.0, level - self.level(now)) * self._period / self._refill

    def take(self, now: float) -> bool:
        """Take a token if there is one; return whether there was."""
        if self.level(now) < 1.0:
            return False
        self.spend(1.0, now)
        return True

    def spend(self, cost: float, now: float) -> None:
        """Take tokens whether or not they are there: less than none may remain."""
        self.tokens, self.spent_at = self.level(now) - cost, now
