"""The default sparsifier: a threshold carried from step to step and corrected by what it achieved.

Exact top-k costs some thirty passes over the gradient; a threshold costs one, if it is the right one. The guess
weighs two witnesses by how far each has been off: the last step's threshold, which is exact but a step old (one batch
easily doubles the gradient), and a sample of this step's acc, which is fresh but coarse. The pass counts what reaches
the guess, so nothing rests on it: too many are trimmed among themselves, too few repeat the pass with the guess moved
along the tail that was seen, and if that misses as well, exact top-k decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.kernels import Compacted, Flat
from trimtab.sparsify.base import Selected, Selector, Sent
from trimtab.sparsify.segments import select_segments, selected
from trimtab.sparsify.topk import kth_largest, select_exactly, top_k_in_place

#: The achieved k stays within this part of the k asked for.
TOLERANCE = 0.1
#: Segments up to this size are selected exactly: that costs less than a guess and its checks.
EXACT_UP_TO = 32_768
#: A sample is to hold about this many elements of the top k (a standard error of 10% of k) ...
SAMPLED_OF_TOP_K = 100
#: ... but has at least this many elements in all, and of a large segment at most one in so many: each is a cache miss.
SAMPLE_LEAST, SAMPLE_ONE_IN = 4096, 512
#: The guess aims so many standard errors above the least acceptable count, for a short count costs a whole pass, and
#: up to so many while what is too many, and has to be trimmed, is less than one element in so many.
AIM_ERRORS, CHEAP_AIM_ERRORS, CHEAP_ONE_IN = 2.0, 4.0, 200
#: There is room for so many standard errors above the aim, for so many times k, and for one element in so many.
ROOM_ERRORS, ROOM_LEAST, ROOM_ONE_IN = 3.0, 2.0, 32
#: A repeated pass aims at least so far above k.
REPEAT_AIM = 1.05
#: Passes repeated before exact top-k decides.
MAX_REPEATS = 2
#: How much of the running variance of log(threshold) is left after a step that drifted less.
DRIFT_MEMORY = 0.8
#: Zeros are never selected for their magnitude.
SMALLEST = 2.0**-149


@dataclass(frozen=True)
class Carried:
    """What one range carries to the next step."""

    k: int
    threshold: float
    """The threshold that k elements of the last step reached."""
    drift: float
    """Running variance of log(threshold) from one step to the next; infinite until two steps have been seen."""


@dataclass(frozen=True)
class Guess:
    """Where the magnitudes' tail is believed to be: count(t) = k (t / threshold)^(-1 / decay) near the threshold."""

    threshold: float
    """Expected to be reached by k elements."""
    decay: float
    """-d log(threshold) / d log(count)."""
    error: float
    """Standard error of log(count) at the threshold."""

    def reached_by(self, factor: float) -> float:
        """The threshold that ``factor`` times k elements should reach."""
        return max(SMALLEST, self.threshold * math.exp(-self.decay * math.log(factor)))


class Tracked(Selector):
    """A tracked threshold per segment.

    Sends between 0.9 k and 1.1 k elements of every segment, the largest ones: fewer only where fewer are not zero,
    though at least one; and exactly k in segments of up to 32,768 elements. A range that is not finite is sent as it
    comes, because the step will be dropped. State is keyed by the range of the arena that a segment covers: where a
    new fusion plan keeps a range it keeps its threshold, elsewhere it is seeded anew.
    """

    name = "tracked"

    def __init__(self) -> None:
        self._carried: dict[tuple[int, int], Carried] = {}
        self._proposed: dict[tuple[int, int], Carried] = {}

    def compress(
        self,
        grad: Flat,
        residual: Tensor,
        next_residual: Tensor,
        segments: Sequence[int],
        k: Sequence[int],
        start: int = 0,
    ) -> Selected:
        """See `Selector.compress`."""

        def select(first: int, grad: Flat, residual: Tensor, next_residual: Tensor, k: int) -> Compacted:
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
        grad: Flat,
        residual: Tensor | None,
        next_residual: Tensor,
        k: int,
    ) -> Compacted:
        """Select in one range; without a ``residual``, in ``next_residual`` as it is."""
        carried = self._carried.get(key)
        if carried is not None and carried.k != k:
            carried = None
        guess = weighed(sampled_guess(grad, residual, k), carried)
        least, most = math.ceil((1 - TOLERANCE) * k), math.floor((1 + TOLERANCE) * k)
        cheap = grad.numel() / (CHEAP_ONE_IN * k)
        aim = (1 - TOLERANCE) * max(
            math.exp(AIM_ERRORS * guess.error), min(math.exp(CHEAP_AIM_ERRORS * guess.error), cheap)
        )
        threshold = guess.reached_by(aim)
        room = max(ROOM_LEAST * k, aim * math.exp(ROOM_ERRORS * guess.error) * k, grad.numel() / ROOM_ONE_IN)
        capacity = min(grad.numel(), math.ceil(room))
        if residual is None:
            found = kernels.select_in_place(next_residual, threshold, capacity, offset)
        else:
            found = kernels.fused_select(grad, residual, next_residual, threshold, capacity, offset)
        if not math.isfinite(found.squared_norm_before):
            return _at_least_one(found, next_residual, offset)

        for _ in range(MAX_REPEATS):
            if found.num_over >= least and not found.overflowed:
                break
            if found.num_over < least and threshold <= SMALLEST:
                break
            kernels.put(next_residual, found.indices - offset, found.values)
            moved = max(0.5, found.num_over) / (max(REPEAT_AIM, min(2.0, cheap)) * k)
            threshold = max(SMALLEST, threshold * moved ** _decay(found, threshold, guess))
            found = kernels.select_in_place(next_residual, threshold, capacity, offset)
        if found.overflowed or (found.num_over < least and threshold > SMALLEST):
            kernels.put(next_residual, found.indices - offset, found.values)
            found = top_k_in_place(next_residual, k, found.squared_norm_before, offset)
            threshold = float(found.values.abs().min())
        if found.num_over > most:
            found = _trimmed(found, k, next_residual, offset)
            threshold = float(found.values.abs().min())

        reached = max(SMALLEST, threshold * (max(1, found.num_over) / k) ** _decay(found, threshold, guess))
        self._proposed[key] = Carried(k, reached, _drift(carried, reached))
        return _at_least_one(found, next_residual, offset)

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """See `Selector.commit`."""
        self._carried.update(self._proposed)
        self._proposed = {}

    def discard(self) -> None:
        """See `Selector.discard`."""
        self._proposed = {}

    def state_dict(self) -> dict[str, Any]:
        """``ranges``: a list of ``[first element, length, k, threshold, drift]``."""
        return {
            "ranges": [[*key, carried.k, carried.threshold, carried.drift] for key, carried in self._carried.items()]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Selector.load_state_dict`."""
        self._proposed = {}
        self._carried = {
            (int(first), int(length)): Carried(int(k), float(threshold), float(drift))
            for first, length, k, threshold, drift in state["ranges"]
        }


def sampled_guess(grad: Flat, residual: Tensor | None, k: int) -> Guess:
    """What a sample of |grad + residual| says, or of |grad|; its tail's decay by Hill's estimator."""
    n = grad.numel()
    wanted = max(SAMPLE_LEAST, min(math.ceil(SAMPLED_OF_TOP_K * n / k), n // SAMPLE_ONE_IN))
    if residual is None:
        assert isinstance(grad, Tensor)
        magnitudes = kernels.sample(grad, grad, min(n, wanted)) / 2  # exact, and no vector of zeros is read
    else:
        magnitudes = kernels.sample(grad, residual, min(n, wanted))
    top = max(1, round(magnitudes.numel() * k / n))
    threshold = kth_largest(magnitudes, top)
    if not SMALLEST <= threshold < math.inf:
        return Guess(SMALLEST, decay=1.0, error=1.0)
    # With few of the top k in the sample, the decay is that of a wider tail.
    tail = max(top, min(SAMPLED_OF_TOP_K, magnitudes.numel() // 4))
    start = max(SMALLEST, kth_largest(magnitudes, tail))
    return Guess(threshold, hill(magnitudes[magnitudes >= start], start), error=top**-0.5)


def hill(magnitudes: Tensor, start: float) -> float:
    """Hill's estimate of -d log(threshold) / d log(count) at ``start``, from the ``magnitudes`` beyond it."""
    return max(1e-3, float((magnitudes.double() / start).log().mean()))


def _decay(found: Compacted, threshold: float, guess: Guess) -> float:
    """The decay of what was found, where that is enough to tell; else the sample's."""
    if found.indices.numel() < SAMPLED_OF_TOP_K or threshold <= SMALLEST:
        return guess.decay
    return hill(found.values[:: found.values.numel() // SAMPLED_OF_TOP_K].abs(), threshold)


def weighed(sampled: Guess, carried: Carried | None) -> Guess:
    """Sample and last step, each weighed by the inverse of its variance in log(threshold)."""
    if carried is None or not math.isfinite(carried.drift):
        return sampled
    sample_weight = (sampled.decay * sampled.error) ** -2
    carried_weight = 1 / max(carried.drift, 1e-8)
    total = sample_weight + carried_weight
    log_threshold = (sample_weight * math.log(sampled.threshold) + carried_weight * math.log(carried.threshold)) / total
    return Guess(math.exp(log_threshold), sampled.decay, error=total**-0.5 / sampled.decay)


def _drift(carried: Carried | None, reached: float) -> float:
    if carried is None:
        return math.inf
    new = math.log(reached / carried.threshold) ** 2
    return new if math.isinf(carried.drift) else max(new, DRIFT_MEMORY * carried.drift)


def _trimmed(found: Compacted, k: int, next_residual: Tensor, offset: int) -> Compacted:
    """Keep the k largest of what was found and put the others back."""
    magnitudes = found.values.abs()
    boundary = kth_largest(magnitudes, k)
    keep = magnitudes > boundary
    equals = (magnitudes == boundary).nonzero().flatten()
    keep[equals[: k - int(keep.sum())]] = True
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
