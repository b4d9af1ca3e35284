"""What one counting pass returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tail:
    """The magnitudes |acc| that reach a threshold; NaN reaches none."""

    count: int
    total: float
    """Their sum, in float64."""
    squares: float
    """The sum of their squares, in float64."""
    largest: float
    """0 where there are none."""

    @property
    def mean(self) -> float:
        """0 where there are none."""
        return self.total / max(1, self.count)
