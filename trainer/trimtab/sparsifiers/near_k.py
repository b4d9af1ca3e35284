"""Selection of about k elements by an estimated threshold: the count corrects it, and exact top-k decides.

The pass counts the elements that reach the estimate, so that a poor estimate costs time and no correctness. Of too
many, the k largest are kept. If too few reach it, the pass is repeated with another threshold, extrapolated from the
count. If that misses as well, exact top-k decides.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsifiers.tail_estimate import SMALLEST, TailEstimate
from trimtab.sparsifiers.topk import kth_largest, top_k_in_place

#: Between (1 - TOLERANCE) k and (1 + TOLERANCE) k elements of a segment are selected.
TOLERANCE = 0.1
#: Segments of up to this many elements are selected exactly, which costs less than estimating and checking.
EXACT_UP_TO = 32_768
#: A count below the tolerance costs a whole pass, one above it only a trim. The threshold is therefore set for a count
#: this many standard errors above the smallest acceptable one ...
AIM_ERRORS = 2.0
#: ... and for up to this many, while that count stays below one element in CHEAP_STRIDE and a trim is cheap.
CHEAP_AIM_ERRORS, CHEAP_STRIDE = 4.0, 200
#: The output buffers hold the largest of: the expected count plus this many standard errors, this multiple of k, and
#: one element in this many.
CAPACITY_ERRORS, CAPACITY_MULTIPLE, CAPACITY_STRIDE = 3.0, 2.0, 32
#: A repeated pass expects at least this multiple of k.
REPEAT_AIM = 1.05
#: The pass is repeated at most this often; then exact top-k decides.
MAX_REPEATS = 2


def select_near_k(
    grad: FlatGrad, residual: Tensor | None, next_residual: Tensor, k: int, offset: int, estimate: TailEstimate
) -> tuple[CompactResult, float]:
    """Take about k elements out of acc.

    Between 0.9 k and 1.1 k elements are taken, fewer only if fewer are not zero, but at least one. If acc is not
    finite, the elements that the pass found are taken.

    Args:
        grad: float32 [n].
        residual: float32 [n]; None if ``next_residual`` already holds acc.
        next_residual: float32 [n]; receives the new residual.
        k: Elements to select.
        offset: Added to the returned indices.
        estimate: The estimated tail of the magnitudes.

    Returns:
        The elements, and the threshold that k elements reach, by the count that was found.
    """
    n = next_residual.numel()
    fewest, most = math.ceil((1 - TOLERANCE) * k), math.floor((1 + TOLERANCE) * k)
    cheap = n / (CHEAP_STRIDE * k)
    aim = (1 - TOLERANCE) * max(
        math.exp(AIM_ERRORS * estimate.error), min(math.exp(CHEAP_AIM_ERRORS * estimate.error), cheap)
    )
    threshold = estimate.threshold_for(aim)
    capacity = room_for(n, k, aim * math.exp(CAPACITY_ERRORS * estimate.error))
    found = one_pass(grad, residual, next_residual, threshold, capacity, offset)
    if not math.isfinite(found.squared_norm_before):
        return at_least_one(found, next_residual, offset), threshold

    for _ in range(MAX_REPEATS):
        if found.num_over >= fewest and not found.overflowed:
            break
        if found.num_over < fewest and threshold <= SMALLEST:
            break
        ratio = max(0.5, found.num_over) / (max(REPEAT_AIM, min(2.0, cheap)) * k)
        threshold = max(SMALLEST, threshold * ratio ** estimate.decay_by(found, threshold))
        found = repeated(found, next_residual, threshold, capacity, offset)
    if found.overflowed or (found.num_over < fewest and threshold > SMALLEST):
        kernels.put(next_residual, found.indices - offset, found.values)
        found = top_k_in_place(next_residual, k, found.squared_norm_before, offset)
        threshold = float(found.values.abs().min())
    if found.num_over > most:
        found, threshold = k_largest(found, k, next_residual, offset)

    ratio = max(1, found.num_over) / k
    reached = max(SMALLEST, threshold * ratio ** estimate.decay_by(found, threshold))
    return at_least_one(found, next_residual, offset), reached


def room_for(n: int, k: int, multiple: float) -> int:
    """Return the capacity of a pass over n elements that expects up to ``multiple`` times k."""
    return min(n, math.ceil(max(multiple * k, CAPACITY_MULTIPLE * k, n / CAPACITY_STRIDE)))


def one_pass(
    grad: FlatGrad, residual: Tensor | None, next_residual: Tensor, threshold: float, capacity: int, offset: int
) -> CompactResult:
    """Take the elements that reach ``threshold``; without a ``residual``, ``next_residual`` already holds acc."""
    if residual is None:
        return kernels.select_in_place(next_residual, threshold, capacity, offset)
    return kernels.fused_select(grad, residual, next_residual, threshold, capacity, offset)


def repeated(
    found: CompactResult, next_residual: Tensor, threshold: float, capacity: int, offset: int
) -> CompactResult:
    """Put back the elements that were found, and take those that reach another threshold."""
    kernels.put(next_residual, found.indices - offset, found.values)
    return kernels.select_in_place(next_residual, threshold, capacity, offset)


def k_largest(found: CompactResult, k: int, next_residual: Tensor, offset: int) -> tuple[CompactResult, float]:
    """Keep the k largest of the elements found, put the others back, and return the smallest magnitude kept."""
    boundary = kth_largest(found.values.abs(), k)
    indices, values, returned = kernels.put_back(next_residual, found.indices, found.values, k, boundary, offset)
    after = found.squared_norm_after + returned
    return replace(found, indices=indices, values=values, num_over=k, squared_norm_after=after), boundary


def at_least_one(found: CompactResult, next_residual: Tensor, offset: int) -> CompactResult:
    """Return the elements found, or take the segment's first element if none reached the threshold."""
    if found.indices.numel() > 0:
        return found
    first = torch.zeros(1, dtype=torch.int32, device=next_residual.device)
    value = kernels.take(next_residual, first)
    removed = kernels.clear(next_residual, first)
    return replace(
        found, indices=first + offset, values=value, squared_norm_after=max(0.0, found.squared_norm_after - removed)
    )
