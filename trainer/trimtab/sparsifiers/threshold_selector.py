"""Selection by an estimated threshold: a sparsifier's own estimate, and bounds that hold however poor it is.

A small segment is selected exactly, which costs less. Each published threshold sparsifier estimates a threshold in its
paper's way, and may correct it by the count that it reached. If the count then lies within the sparsifier's bounds,
these elements are sent. Of too many, the k largest are kept. Otherwise `trimtab.sparsifiers.near_k` selects: by a
sample, corrected by its count, and exactly if that misses too.
"""

from __future__ import annotations

import math
from abc import abstractmethod

from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsifiers.base import SegmentSelector, Selected, selected
from trimtab.sparsifiers.near_k import EXACT_UP_TO, at_least_one, k_largest, one_pass, repeated, room_for, select_near_k
from trimtab.sparsifiers.tail_estimate import SMALLEST, estimate_by_sample
from trimtab.sparsifiers.topk import select_exactly, top_k_in_place

#: Key of carried state: a segment's first element in the flat buffers, and its length.
Key = tuple[int, int]


class EstimatingSelector(SegmentSelector):
    """Selects by an estimate in segments of more than `EXACT_UP_TO` elements, unless k is all of them."""

    @abstractmethod
    def _select(
        self, grad: FlatGrad, residual: Tensor | None, next_residual: Tensor, k: int, offset: int, key: Key
    ) -> CompactResult:
        """Select in one such segment; without a ``residual``, ``next_residual`` already holds acc."""

    def _select_segment(
        self, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int, offset: int, start: int
    ) -> CompactResult:
        n = grad.numel()
        if n <= EXACT_UP_TO or k >= n:
            return select_exactly(grad, residual, next_residual, k, offset)
        return self._select(grad, residual, next_residual, k, offset, (start, n))

    def take(self, acc: Tensor, k: int, key: Key) -> Selected:
        """See `Selector.take`."""
        if acc.numel() <= EXACT_UP_TO or k >= acc.numel():
            return selected(top_k_in_place(acc, k, kernels.squared_norm(acc), offset=0))
        return selected(self._select(acc, None, acc, k, 0, key))


class ThresholdSelector(EstimatingSelector):
    """Sends `lower` k to `upper` k elements of a segment: those that reach the estimated threshold.

    It sends fewer only if fewer are not zero, but at least one. Of a segment of up to `EXACT_UP_TO` elements, and if
    the estimate is reached by too many, it sends exactly the k largest; if by too few, within 10% of k. A segment that
    is not finite is sent as the pass found it, since the step will be dropped.
    """

    lower: float
    upper: float
    looks_at_all = True
    """True if the estimate needs acc to be formed; else it samples, and one pass forms acc and selects."""
    max_corrections = 0
    """Largest number of corrections of a threshold by the count that it reached."""

    @abstractmethod
    def _threshold(self, grad: FlatGrad, residual: Tensor | None, k: int, key: Key) -> float:
        """Estimate the threshold that about k elements of |grad + residual| reach.

        Without a residual, ``grad`` is acc.
        """

    def _corrected(self, threshold: float, num_over: int, k: int) -> float:
        """Return the threshold to try next if ``num_over`` elements reached one; the same if it is good enough."""
        return threshold

    def _reached(self, key: Key, k: int, num_over: int) -> None:
        """Note how many elements the last threshold of this segment reached, before bounds apply."""

    def _select(
        self, grad: FlatGrad, residual: Tensor | None, next_residual: Tensor, k: int, offset: int, key: Key
    ) -> CompactResult:
        if residual is not None and self.looks_at_all:
            kernels.accumulate(grad, residual, next_residual)
            grad, residual = next_residual, None
        threshold = self._threshold(grad, residual, k, key)
        threshold = max(SMALLEST, threshold) if math.isfinite(threshold) else math.inf
        capacity = room_for(next_residual.numel(), k, self.upper)
        found = one_pass(grad, residual, next_residual, threshold, capacity, offset)
        if not math.isfinite(found.squared_norm_before):
            return at_least_one(found, next_residual, offset)
        for _ in range(self.max_corrections):
            corrected = max(SMALLEST, self._corrected(threshold, found.num_over, k))
            if corrected == threshold:
                break
            threshold = corrected
            found = repeated(found, next_residual, threshold, capacity, offset)
        self._reached(key, k, found.num_over)

        if math.ceil(self.lower * k) <= found.num_over <= math.floor(self.upper * k):
            return found
        if found.num_over >= k and not found.overflowed:
            return k_largest(found, k, next_residual, offset)[0]
        kernels.put(next_residual, found.indices - offset, found.values)
        estimate = estimate_by_sample(next_residual, None, k)
        return select_near_k(next_residual, None, next_residual, k, offset, estimate)[0]
