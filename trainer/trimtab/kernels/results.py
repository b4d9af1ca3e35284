"""Results of the fused pass and of the counting pass."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class CompactResult:
    """The elements of acc that reached a threshold, compacted."""

    indices: Tensor
    """int32 [m], ascending."""
    values: Tensor
    """float32 [m]: acc at the indices."""
    num_over: int
    """Elements that reached the threshold; more than m when the capacity was too small for them."""
    squared_norm_before: float
    """Sum of squares of acc; not finite if and only if acc is not."""
    squared_norm_after: float
    """Sum of squares of acc with the m elements zeroed."""

    @property
    def overflowed(self) -> bool:
        """True if elements that reached the threshold were left behind for want of capacity."""
        return self.num_over > self.indices.numel()


@dataclass(frozen=True)
class Tail:
    """The magnitudes |acc| that reach a threshold; NaN reaches none."""

    count: int
    total: float
    """Sum of these magnitudes, in float64."""
    squares: float
    """Sum of their squares, in float64."""
    largest: float
    """0 if there are none."""

    @property
    def mean(self) -> float:
        """0 if there are none."""
        return self.total / max(1, self.count)
