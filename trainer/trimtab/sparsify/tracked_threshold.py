"""The default sparsifier: sends what reaches a threshold that it carries from step to step.

Exact top-k costs some thirty passes over the gradient. Comparing with a threshold costs one, if about k elements reach
the threshold. Each step therefore estimates it from two sources, each weighted by the inverse of its variance:

* the threshold that k elements reached in the last step: exact, but a step old, and one batch easily doubles the
  gradient;
* a sample of this step's acc = grad + residual: new, but coarse.

The pass counts the elements that reach the estimate, so a poor estimate costs time and no correctness. Of too many, the
k largest are kept. Too few, and the pass is repeated with another threshold, extrapolated from the count. When that
misses as well, exact top-k decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsify.base import Selected, Selector, Sent
from trimtab.sparsify.segments import select_segments, selected
from trimtab.sparsify.topk import kth_largest, select_exactly, top_k_in_place

#: Between (1 - TOLERANCE) k and (1 + TOLERANCE) k elements of a segment are sent.
TOLERANCE = 0.1
#: Segments of up to this many elements are selected exactly, which costs less than estimating and checking.
EXACT_UP_TO = 32_768
#: The sample should hold this many of the k largest elements: the standard error of the count is then 10% of k.
TOP_SAMPLES = 100
#: The sample has at least this many elements, whatever k is.
MIN_SAMPLES = 4096
#: A large segment is sampled at most at one element in this many, since each sampled element is a cache miss.
MIN_SAMPLE_STRIDE = 512
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
#: The running variance of log(threshold) falls to no less than this share of itself in one step.
DRIFT_MEMORY = 0.8
#: No threshold is below the smallest positive float32: zeros are never selected for their magnitude.
SMALLEST = 2.0**-149


@dataclass(frozen=True)
class SegmentState:
    """What a segment's selection carries to the next step."""

    k: int
    threshold: float
    """The threshold that k elements of the last step reached."""
    drift: float
    """Running variance of log(threshold) from one step to the next; infinite until two steps have been seen."""


@dataclass(frozen=True)
class TailEstimate:
    """The estimated tail of the magnitudes: near ``threshold``, k (t / threshold)^(-1 / decay) of them reach t."""

    threshold: float
    """About k elements should reach it."""
    decay: float
    """-d log(threshold) / d log(count)."""
    error: float
    """Standard error of log(count) at the threshold."""

    def threshold_for(self, factor: float) -> float:
        """The threshold that ``factor`` times k elements should reach."""
        return max(SMALLEST, self.threshold * math.exp(-self.decay * math.log(factor)))


class TrackedThreshold(Selector):
    """A threshold for each segment, carried from step to step.

    Of a segment with more than `EXACT_UP_TO` elements it sends the largest, between 0.9 k and 1.1 k of them. It sends
    fewer only where fewer are not zero, but at least one. Of a smaller segment it sends exactly k. A segment that is
    not finite is sent as the pass found it, since the step will be dropped.

    The state is keyed by the range of the arena that a segment covers. When a new fusion plan keeps a range, the range
    keeps its threshold; any other range starts from a sample alone.
    """

    name = "tracked"

    def __init__(self) -> None:
        self._state: dict[tuple[int, int], SegmentState] = {}
        self._proposed: dict[tuple[int, int], SegmentState] = {}

    def compress(
        self,
        grad: FlatGrad,
        residual: Tensor,
        next_residual: Tensor,
        segments: Sequence[int],
        k: Sequence[int],
        start: int = 0,
    ) -> Selected:
        """See `Selector.compress`."""

        def select(first: int, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int) -> CompactResult:
            if grad.numel() <= EXACT_UP_TO or k >= grad.numel():
                return select_exactly(first, grad, residual, next_residual, k)
            return self._select((start + first, grad.numel()), first, grad, residual, next_residual, k)

        return select_segments(grad, residual, next_residual, segments, k, select)

    def take(self, acc: Tensor, k: int, key: tuple[int, int]) -> Selected:
        """See `Selector.take`."""
        if acc.numel() <= EXACT_UP_TO or k >= acc.numel():
            return selected(top_k_in_place(acc, k, kernels.squared_norm(acc), offset=0))
        return selected(self._select(key, 0, acc, None, acc, k))

    def _select(
        self,
        key: tuple[int, int],
        offset: int,
        grad: FlatGrad,
        residual: Tensor | None,
        next_residual: Tensor,
        k: int,
    ) -> CompactResult:
        """Select in one segment; without a ``residual``, ``next_residual`` already holds acc."""
        carried = self._state.get(key)
        if carried is not None and carried.k != k:
            carried = None
        estimate = combined(estimate_by_sample(grad, residual, k), carried)
        fewest, most = math.ceil((1 - TOLERANCE) * k), math.floor((1 + TOLERANCE) * k)
        cheap = grad.numel() / (CHEAP_STRIDE * k)
        aim = (1 - TOLERANCE) * max(
            math.exp(AIM_ERRORS * estimate.error), min(math.exp(CHEAP_AIM_ERRORS * estimate.error), cheap)
        )
        threshold = estimate.threshold_for(aim)
        room = max(
            aim * math.exp(CAPACITY_ERRORS * estimate.error) * k, CAPACITY_MULTIPLE * k, grad.numel() / CAPACITY_STRIDE
        )
        capacity = min(grad.numel(), math.ceil(room))
        if residual is None:
            found = kernels.select_in_place(next_residual, threshold, capacity, offset)
        else:
            found = kernels.fused_select(grad, residual, next_residual, threshold, capacity, offset)
        if not math.isfinite(found.squared_norm_before):
            return _at_least_one(found, next_residual, offset)

        for _ in range(MAX_REPEATS):
            if found.num_over >= fewest and not found.overflowed:
                break
            if found.num_over < fewest and threshold <= SMALLEST:
                break
            kernels.put(next_residual, found.indices - offset, found.values)
            ratio = max(0.5, found.num_over) / (max(REPEAT_AIM, min(2.0, cheap)) * k)
            threshold = max(SMALLEST, threshold * ratio ** _tail_decay(found, threshold, estimate))
            found = kernels.select_in_place(next_residual, threshold, capacity, offset)
        if found.overflowed or (found.num_over < fewest and threshold > SMALLEST):
            kernels.put(next_residual, found.indices - offset, found.values)
            found = top_k_in_place(next_residual, k, found.squared_norm_before, offset)
            threshold = float(found.values.abs().min())
        if found.num_over > most:
            found, threshold = _k_largest(found, k, next_residual, offset)

        ratio = max(1, found.num_over) / k
        reached = max(SMALLEST, threshold * ratio ** _tail_decay(found, threshold, estimate))
        self._proposed[key] = SegmentState(k, reached, _drift(carried, reached))
        return _at_least_one(found, next_residual, offset)

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """See `Selector.commit`."""
        self._state.update(self._proposed)
        self._proposed = {}

    def discard(self) -> None:
        """See `Selector.discard`."""
        self._proposed = {}

    def state_dict(self) -> dict[str, Any]:
        """``ranges``: a list of ``[first element, length, k, threshold, drift]``."""
        return {"ranges": [[*key, carried.k, carried.threshold, carried.drift] for key, carried in self._state.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Selector.load_state_dict`."""
        self._proposed = {}
        self._state = {
            (int(first), int(length)): SegmentState(int(k), float(threshold), float(drift))
            for first, length, k, threshold, drift in state["ranges"]
        }


def estimate_by_sample(grad: FlatGrad, residual: Tensor | None, k: int) -> TailEstimate:
    """Estimate the tail from a sample of |grad + residual|, or of |grad| without a residual; the decay is Hill's."""
    n = grad.numel()
    wanted = max(MIN_SAMPLES, min(math.ceil(TOP_SAMPLES * n / k), n // MIN_SAMPLE_STRIDE))
    if residual is None:
        assert isinstance(grad, Tensor)
        magnitudes = (
            kernels.sample(grad, grad, min(n, wanted)) / 2
        )  # |grad| to the bit, without a residual of zeros to read
    else:
        magnitudes = kernels.sample(grad, residual, min(n, wanted))
    top = max(1, round(magnitudes.numel() * k / n))
    threshold = kth_largest(magnitudes, top)
    if not SMALLEST <= threshold < math.inf:
        return TailEstimate(SMALLEST, decay=1.0, error=1.0)
    # A sample that holds few of the k largest gives the decay of a wider tail.
    tail = max(top, min(TOP_SAMPLES, magnitudes.numel() // 4))
    start = max(SMALLEST, kth_largest(magnitudes, tail))
    return TailEstimate(threshold, hill(magnitudes[magnitudes >= start], start), error=top**-0.5)


def hill(magnitudes: Tensor, start: float) -> float:
    """Hill's estimate of -d log(threshold) / d log(count) at ``start``, from the ``magnitudes`` beyond it."""
    return max(1e-3, float((magnitudes.double() / start).log().mean()))


def _tail_decay(found: CompactResult, threshold: float, estimate: TailEstimate) -> float:
    """The tail's decay by the elements found, or by the sample where too few were found."""
    if found.indices.numel() < TOP_SAMPLES or threshold <= SMALLEST:
        return estimate.decay
    return hill(found.values[:: found.values.numel() // TOP_SAMPLES].abs(), threshold)


def combined(sampled: TailEstimate, carried: SegmentState | None) -> TailEstimate:
    """The sample's estimate and the last step's threshold, each weighted by the inverse variance of log(threshold)."""
    if carried is None or not math.isfinite(carried.drift):
        return sampled
    sample_weight = (sampled.decay * sampled.error) ** -2
    carried_weight = 1 / max(carried.drift, 1e-8)
    total = sample_weight + carried_weight
    log_threshold = (sample_weight * math.log(sampled.threshold) + carried_weight * math.log(carried.threshold)) / total
    return TailEstimate(math.exp(log_threshold), sampled.decay, error=total**-0.5 / sampled.decay)


def _drift(carried: SegmentState | None, reached: float) -> float:
    """The running variance of log(threshold), with this step's change; infinite where there was no last step."""
    if carried is None:
        return math.inf
    new = math.log(reached / carried.threshold) ** 2
    return new if math.isinf(carried.drift) else max(new, DRIFT_MEMORY * carried.drift)


def _k_largest(found: CompactResult, k: int, next_residual: Tensor, offset: int) -> tuple[CompactResult, float]:
    """Keep the k largest of the elements found, and put the others back; with the smallest magnitude kept."""
    boundary = kth_largest(found.values.abs(), k)
    indices, values, returned = kernels.put_back(next_residual, found.indices, found.values, k, boundary, offset)
    after = found.squared_norm_after + returned
    return replace(found, indices=indices, values=values, num_over=k, squared_norm_after=after), boundary


def _at_least_one(found: CompactResult, next_residual: Tensor, offset: int) -> CompactResult:
    """The elements found, or the segment's first element where none reached the threshold."""
    if found.indices.numel() > 0:
        return found
    first = torch.zeros(1, dtype=torch.int32, device=next_residual.device)
    value = kernels.take(next_residual, first)
    removed = kernels.clear(next_residual, first)
    return replace(
        found, indices=first + offset, values=value, squared_norm_after=max(0.0, found.squared_norm_after - removed)
    )
