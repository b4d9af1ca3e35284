"""The default sparsifier: it sends the elements that reach a threshold carried from step to step.

Exact top-k costs some thirty passes over the gradient. Comparing with a threshold costs one, if about k elements reach
the threshold. Each step therefore estimates it from two sources, each weighted by the inverse of its variance:

* the threshold that k elements reached in the last step: exact, but a step old, and one batch easily doubles the
  gradient;
* a sample of this step's acc = grad + residual: new, but coarse.

The count of the pass at that threshold corrects it (`trimtab.sparsifiers.near_k`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsifiers.base import Sent
from trimtab.sparsifiers.near_k import select_near_k
from trimtab.sparsifiers.tail_estimate import TailEstimate, estimate_by_sample
from trimtab.sparsifiers.threshold_selector import EstimatingSelector, Key

#: The running variance of log(threshold) falls to no less than this share of itself in one step.
DRIFT_MEMORY = 0.8


@dataclass(frozen=True)
class SegmentState:
    """State that a segment's selection carries to the next step."""

    k: int
    threshold: float
    """The threshold that k elements of the last step reached."""
    drift: float
    """Running variance of log(threshold) from one step to the next; infinite until two steps have been seen."""


class TrackedThreshold(EstimatingSelector):
    """A threshold for each segment, carried from step to step.

    Of a segment with more than `EXACT_UP_TO` elements it sends the largest, between 0.9 k and 1.1 k of them. It sends
    fewer only if fewer are not zero, but at least one. Of a smaller segment it sends exactly k. A segment that is not
    finite is sent as the pass found it, since the step will be dropped.

    The state is keyed by the range of the flat buffers that a segment covers. If a new fusion plan keeps a range, the
    range keeps its threshold; any other range starts from a sample alone.
    """

    name = "tracked"

    def __init__(self) -> None:
        self._state: dict[Key, SegmentState] = {}
        self._proposed: dict[Key, SegmentState] = {}

    def _select(
        self, grad: FlatGrad, residual: Tensor | None, next_residual: Tensor, k: int, offset: int, key: Key
    ) -> CompactResult:
        carried = self._state.get(key)
        if carried is not None and carried.k != k:
            carried = None
        estimate = combined(estimate_by_sample(grad, residual, k), carried)
        found, reached = select_near_k(grad, residual, next_residual, k, offset, estimate)
        if math.isfinite(found.squared_norm_before):
            self._proposed[key] = SegmentState(k, reached, _drift(carried, reached))
        return found

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """See `Selector.commit`."""
        self._state.update(self._proposed)
        self._proposed = {}

    def discard(self) -> None:
        """See `Selector.discard`."""
        self._proposed = {}

    def state_dict(self) -> dict[str, Any]:
        """Return ``ranges``: ``[first element, length, k, threshold, drift]`` each."""
        return {"ranges": [[*key, carried.k, carried.threshold, carried.drift] for key, carried in self._state.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Selector.load_state_dict`."""
        self._proposed = {}
        self._state = {
            (int(first), int(length)): SegmentState(int(k), float(threshold), float(drift))
            for first, length, k, threshold, drift in state["ranges"]
        }


def combined(sampled: TailEstimate, carried: SegmentState | None) -> TailEstimate:
    """Combine the sample's estimate with the last step's threshold, by the inverse variance of log(threshold)."""
    if carried is None or not math.isfinite(carried.drift):
        return sampled
    sample_weight = (sampled.decay * sampled.error) ** -2
    carried_weight = 1 / max(carried.drift, 1e-8)
    total = sample_weight + carried_weight
    log_threshold = (sample_weight * math.log(sampled.threshold) + carried_weight * math.log(carried.threshold)) / total
    return TailEstimate(math.exp(log_threshold), sampled.decay, error=total**-0.5 / sampled.decay)


def _drift(carried: SegmentState | None, reached: float) -> float:
    """Update the running variance of log(threshold) with this step's change; infinite without a last step."""
    if carried is None:
        return math.inf
    new = math.log(reached / carried.threshold) ** 2
    return new if math.isinf(carried.drift) else max(new, DRIFT_MEMORY * carried.drift)
