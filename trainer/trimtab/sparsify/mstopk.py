"""MSTopk: a threshold found by bisection, then exactly k (Shi et al., Towards Scalable Distributed Training of Deep
Learning on Public Cloud Clusters, 2020, Algorithm 1).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsify.base import Selected, Selector, Sent
from trimtab.sparsify.segments import select_segments, selected

#: Rounds of bisection, the paper's N.
ROUNDS = 25


class MSTopK(Selector):
    """Exactly k elements of each segment: those over a high threshold, and a run of those over a low one.

    The two thresholds close in on the one that k elements reach. The run fills up to k and begins at a random place,
    as in the paper; the place is drawn from the number of committed steps, so a step that is repeated is the same.
    """

    name = "mstopk"

    def __init__(self) -> None:
        self._num_steps = 0
        self._used = False

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
        self._used = True

        def select(first: int, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int) -> CompactResult:
            squared_norm = kernels.accumulate(grad, residual, next_residual)
            return self._take(next_residual, k, squared_norm, start + first, first)

        return select_segments(grad, residual, next_residual, segments, k, select)

    def take(self, acc: Tensor, k: int, key: tuple[int, int]) -> Selected:
        """See `Selector.take`."""
        self._used = True
        return selected(self._take(acc, min(k, acc.numel()), kernels.squared_norm(acc), key[0], offset=0))

    def _take(self, acc: Tensor, k: int, squared_norm: float, start: int, offset: int) -> CompactResult:
        place = random.Random(f"{self._num_steps} {start}").random()
        chosen = multi_sampling(acc.abs(), k, place)
        values = kernels.take(acc, chosen)
        removed = kernels.clear(acc, chosen)
        return CompactResult(chosen + offset, values, k, squared_norm, max(0.0, squared_norm - removed))

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """See `Selector.commit`."""
        self._num_steps += self._used
        self._used = False

    def discard(self) -> None:
        """See `Selector.discard`."""
        self._used = False

    def state_dict(self) -> dict[str, Any]:
        """``num_steps``: committed steps."""
        return {"num_steps": self._num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Selector.load_state_dict`."""
        self._num_steps, self._used = int(state["num_steps"]), False


def multi_sampling(magnitudes: Tensor, k: int, place: float) -> Tensor:
    """Indices (int32 [k], ascending) of k of the ``magnitudes`` (float32 [n], k <= n).

    ``place`` in [0, 1) says where the run of those between the thresholds begins. The paper starts both thresholds
    at 0, which sends everything if no round finds fewer than k; here the high one starts above the largest.
    """
    mean, largest = float(magnitudes.mean()), float(magnitudes.max())
    high, low = float("inf"), 0.0
    most_within, least_beyond = 0, magnitudes.numel()
    left, right = 0.0, 1.0
    for _ in range(ROUNDS):
        middle = left + (right - left) / 2
        threshold = mean + middle * (largest - mean)
        count = kernels.tail(magnitudes, threshold).count
        if count <= k:
            right = middle
            if count > most_within:
                most_within, high = count, threshold
        else:
            left = middle
            if count < least_beyond:
                least_beyond, low = count, threshold

    over = magnitudes >= high
    between = (~over & ~(magnitudes < low)).nonzero().flatten()
    missing = k - int(over.sum())
    begin = int(place * (between.numel() - missing + 1))
    chosen = torch.cat([over.nonzero().flatten(), between[begin : begin + missing]])
    return chosen.to(torch.int32).sort().values
