"""The default sparsifier: a threshold carried from step to step and corrected by what it achieved.

Exact top-k costs some thirty passes over the gradient; a threshold costs one, if it is the right one. It is guessed
from the last step, or from a sample of acc where there is no last step or k has changed; the pass counts what reaches
it, so each guess is checked. Too many are trimmed among themselves; too few, or more than there is room for, and the
pass is repeated with a threshold from a sample; and if that misses as well, exact top-k decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.kernels import Compacted
from trimtab.sparsify.base import Selected, Selector
from trimtab.sparsify.segments import select_segments
from trimtab.sparsify.topk import select_exactly, top_k_in_place

#: Achieved k stays within this of the k asked for.
TOLERANCE = 0.1
#: Room for a guess that takes too many, before it has to be repeated: this many times k, and some for small k.
ROOM, ROOM_FOR_SMALL = 1.5, 256
#: Segments up to this size are selected exactly: that costs less than a sample.
EXACT_UP_TO = 4096
#: A sample is large enough to hold about this many of the selected (a standard error of 5%) ...
SAMPLE_SELECTED = 400
#: ... and no smaller than this.
SAMPLE_LEAST = 4096
#: Passes repeated with a threshold from a sample, before exact top-k decides.
MAX_REPEATS = 2
#: Zeros are never selected for their magnitude.
SMALLEST = 2.0**-149


@dataclass(frozen=True)
class Carried:
    """What one range carries to the next step."""

    k: int
    threshold: float
    """The threshold that would have selected k elements of the last step."""


class Tracked(Selector):
    """A tracked threshold per segment.

    Sends between ``0.9 k`` and ``1.1 k`` of every segment, rounded outward; fewer where fewer are not zero (though at
    least one), and exactly k in segments of up to 4096 elements. State is keyed by the range of the arena that a
    segment covers: where a new fusion plan keeps a range it keeps its threshold, elsewhere it is seeded anew.
    """

    name = "tracked"

    def __init__(self) -> None:
        self._carried: dict[tuple[int, int], Carried] = {}
        self._proposed: dict[tuple[int, int], Carried] = {}

    def compress(
        self,
        grad: Tensor,
        residual: Tensor,
        next_residual: Tensor,
        segments: Sequence[int],
        k: Sequence[int],
        start: int = 0,
    ) -> Selected:
        """See `Selector.compress`."""

        def select(first: int, grad: Tensor, residual: Tensor, next_residual: Tensor, k: int) -> Compacted:
            if grad.numel() <= EXACT_UP_TO or k >= grad.numel():
                return select_exactly(first, grad, residual, next_residual, k)
            return self._select((start + first, grad.numel()), first, grad, residual, next_residual, k)

        return select_segments(grad, residual, next_residual, segments, k, select)

    def _select(
        self,
        key: tuple[int, int],
        offset: int,
        grad: Tensor,
        residual: Tensor,
        next_residual: Tensor,
        k: int,
    ) -> Compacted:
        carried = self._carried.get(key)
        if carried is not None and carried.k == k:
            threshold = carried.threshold
        else:
            threshold = sampled_threshold(k, grad, residual)
        least, most = math.floor((1 - TOLERANCE) * k), math.ceil((1 + TOLERANCE) * k)
        capacity = min(grad.numel(), math.ceil(ROOM * k) + ROOM_FOR_SMALL)
        found = kernels.fused_select(grad, residual, next_residual, threshold, capacity, offset)
        for _ in range(MAX_REPEATS):
            if not math.isfinite(found.squared_norm_before):
                return _at_least_one(found, next_residual, offset)  # the step will be dropped
            if found.num_over > most and not found.overflowed:
                found = _trimmed(found, k, next_residual, offset)
                threshold = float(found.values.abs().min())
            if least <= found.num_over <= most or (found.num_over < least and threshold <= SMALLEST):
                break
            kernels.put(next_residual, found.indices - offset, found.values)
            threshold = sampled_threshold(k, next_residual)
            found = kernels.select_in_place(next_residual, threshold, capacity, offset)
        else:
            kernels.put(next_residual, found.indices - offset, found.values)
            found = top_k_in_place(next_residual, k, found.squared_norm_before, offset)
            threshold = float(found.values.abs().min())
        self._proposed[key] = Carried(k, _corrected(threshold, found, k))
        return _at_least_one(found, next_residual, offset)

    def commit(self) -> None:
        """See `Selector.commit`."""
        self._carried.update(self._proposed)
        self._proposed = {}

    def discard(self) -> None:
        """See `Selector.discard`."""
        self._proposed = {}

    def state_dict(self) -> dict[str, Any]:
        """``ranges``: a list of ``[first element, length, k, threshold]``."""
        return {"ranges": [[*key, carried.k, carried.threshold] for key, carried in self._carried.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Selector.load_state_dict`."""
        self._proposed = {}
        self._carried = {
            (int(first), int(length)): Carried(int(k), float(threshold))
            for first, length, k, threshold in state["ranges"]
        }


def sampled_threshold(k: int, *terms: Tensor) -> float:
    """The threshold that k elements of |the sum of ``terms``| reach, estimated from evenly spread elements.

    Never under the smallest float32 above zero.
    """
    n = terms[0].numel()
    num_samples = min(n, max(SAMPLE_LEAST, math.ceil(SAMPLE_SELECTED * n / k)))
    stride = n // num_samples
    sample = torch.stack([term[::stride] for term in terms]).sum(0).abs()
    sample_k = max(1, min(sample.numel(), round(sample.numel() * k / n)))
    return max(SMALLEST, float(sample.topk(sample_k).values[-1]))


def _corrected(threshold: float, found: Compacted, k: int) -> float:
    """The threshold that k would have reached, from the tail beyond the threshold (Hill's estimator)."""
    if found.num_over == 0 or threshold <= SMALLEST:
        return threshold
    sample = found.values[:: max(1, found.num_over // 4096)].abs().double()
    decay = float((sample / threshold).log().mean())  # 1 / d log(count) / d log(threshold)
    return max(SMALLEST, threshold * math.exp(decay * math.log(found.num_over / k)))


def _trimmed(found: Compacted, k: int, next_residual: Tensor, offset: int) -> Compacted:
    """Keep the k largest of what was found and put the others back."""
    keep = torch.zeros(found.num_over, dtype=torch.bool, device=found.values.device)
    keep[found.values.abs().topk(k, sorted=False).indices] = True
    returned = found.values[~keep]
    kernels.put(next_residual, found.indices[~keep] - offset, returned)
    return replace(
        found,
        indices=found.indices[keep],
        values=found.values[keep],
        num_over=k,
        squared_norm_after=found.squared_norm_after + float(returned.double().square().sum()),
    )


def _at_least_one(found: Compacted, next_residual: Tensor, offset: int) -> Compacted:
    """Send the first element where nothing reached the threshold."""
    if found.indices.numel() > 0:
        return found
    first = torch.zeros(1, dtype=torch.int32, device=next_residual.device)
    value = kernels.take(next_residual, first)
    removed = kernels.clear(next_residual, first)
    return replace(
        found, indices=first + offset, values=value, squared_norm_after=max(0.0, found.squared_norm_after - removed)
    )
