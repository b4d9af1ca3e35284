"""ExDyna's selection in a rank's partition (section IV-C, Algorithm 4), and the threshold for it (section IV-D).

One threshold serves all ranks, scaled by what it achieved (Algorithm 5). Every rank knows how many elements all of them
selected, so all scale it alike without a message.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.collectives.base import Exchange

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selector
#: A quota is kept within this share of itself.
TOLERANCE = 0.1
#: No threshold is below the smallest positive float32: zeros are never selected.
SMALLEST = 2.0**-149
#: The paper's rule (Algorithm 5): beta, how far the count may be off, and gamma, by how much the threshold then moves.
TOLERATED, STEP = 1.1, 0.005
#: Ours: the power of k'/k by which the threshold moves, about what k'/k moves it by where the tail of magnitudes is
#: an exponential's, and the most that it moves by in a step.
POWER, LEAST_SCALE, MOST_SCALE = 0.1, 0.95, 1.05


@dataclass(frozen=True)
class PartSelection:
    """A selection in one partition, and norms of the whole buffer."""

    indices: Tensor
    """int32 [m], ascending, relative to the buffer."""
    values: Tensor
    """float32 [m]: acc at the indices."""
    num_over: int
    """Elements of the partition that reach the threshold, selected or not."""
    squared_norm_before: float
    """Sum of squares of acc."""
    squared_norm_after: float
    """Sum of squares of acc with the selection zeroed."""


def select_over(exchange: Exchange, span: tuple[int, int], threshold: float, capacity: int) -> PartSelection:
    """Select the elements that reach the threshold in ``span`` of the buffer (Algorithm 4).

    ``exchange.next_residual`` becomes acc with the selection zeroed.

    Args:
        exchange: The buffer.
        span: First element of the partition, and its end.
        threshold: Smallest magnitude that is selected.
        capacity: Most elements to select; the first ones are taken.
    """
    first, end = span
    nothing = exchange.out.new_empty(0)
    selection = PartSelection(nothing.to(torch.int32), nothing, 0, 0.0, 0.0)
    for start, stop in ((0, first), (first, end), (end, exchange.out.numel())):
        if start == stop:
            continue
        grad, residual, following = (
            part[start:stop] for part in (exchange.grad, exchange.residual, exchange.next_residual)
        )
        assert isinstance(residual, Tensor)
        assert isinstance(following, Tensor)
        if (start, stop) == span:
            found = kernels.fused_select(grad, residual, following, threshold, min(capacity, stop - start), start)
            selection = replace(selection, indices=found.indices, values=found.values, num_over=found.num_over)
            before, after = found.squared_norm_before, found.squared_norm_after
        else:
            before = after = kernels.accumulate(grad, residual, following)
        selection = replace(
            selection,
            squared_norm_before=selection.squared_norm_before + before,
            squared_norm_after=selection.squared_norm_after + after,
        )
    return selection


def within_quota(
    exchange: Exchange,
    span: tuple[int, int],
    selection: PartSelection,
    quota: int,
    selector: Selector,
    key: tuple[int, int],
) -> PartSelection:
    """Return the selection if about ``quota`` elements reached the threshold; else select anew in ``span``.

    Args:
        exchange: The buffer.
        span: First element of the partition, and its end.
        selection: Result of `select_over`.
        quota: Elements to select in the partition.
        selector: Selects anew.
        key: Key of the selector's state.
    """
    first, end = span
    least, most = (1 - TOLERANCE) * quota, (1 + TOLERANCE) * quota
    if least <= selection.num_over <= most and selection.num_over == selection.indices.numel():
        return selection
    acc = exchange.next_residual[first:end]
    returned = kernels.squared_norm(selection.values)
    kernels.put(exchange.next_residual, selection.indices, selection.values)
    rest = selection.squared_norm_after + returned
    if quota == 0:
        return replace(selection, indices=selection.indices[:0], values=selection.values[:0], squared_norm_after=rest)
    taken = selector.take(acc, quota, key)
    return replace(
        selection,
        indices=taken.indices + first,
        values=taken.values,
        squared_norm_after=max(0.0, rest - taken.squared_norm_before + taken.squared_norm_after),
    )


def scale_as_published(selected: int, k: int) -> float:
    """Return the factor of Algorithm 5: 0.5% up or down, or a quarter of that up if the count is within 10%."""
    ratio = selected / k
    if ratio > TOLERATED:
        return 1 + STEP
    return 1 + STEP / 4 if ratio > 1 / TOLERATED else 1 - STEP


def scale_by_count(selected: int, k: int) -> float:
    """Return (k'/k)^0.1, within 5%: a count that is twice too large moves the threshold at once by the most."""
    return min(MOST_SCALE, max(LEAST_SCALE, math.pow(selected / k, POWER)))


#: By the name of the option.
RULES: dict[str, Callable[[int, int], float]] = {
    "bounded": scale_by_count,
    "scaled": scale_by_count,
    "paper": scale_as_published,
}


def mean_of(thresholds: list[float]) -> float:
    """Return the geometric mean of the ranks' thresholds, at least `SMALLEST`."""
    return math.exp(sum(math.log(max(SMALLEST, threshold)) for threshold in thresholds) / len(thresholds))
