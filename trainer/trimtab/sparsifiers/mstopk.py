"""MSTopk: a threshold found by bisection, then exactly k elements.

Shi et al., Towards Scalable Distributed Training of Deep Learning on Public Cloud Clusters, 2020, Algorithm 1.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.sparsifiers.base import FormedSelector, Sent

#: Rounds of bisection, the paper's N.
ROUNDS = 25


class MSTopK(FormedSelector):
    """Selects exactly k elements of each segment: all over a high threshold, and a run of those over a low one.

    The two thresholds close in on the one that k elements reach. The run fills up to k and begins at a random place, as
    in the paper. The place is drawn from the number of committed steps, so that a repeated step selects the same.
    """

    name = "mstopk"

    def __init__(self) -> None:
        self._num_steps = 0
        self._used = False

    def _choose(self, acc: Tensor, k: int, start: int) -> Tensor:
        self._used = True
        return multi_sampling(acc.abs(), k, random.Random(f"{self._num_steps} {start}").random())

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """See `Selector.commit`."""
        self._num_steps += self._used
        self._used = False

    def discard(self) -> None:
        """See `Selector.discard`."""
        self._used = False

    def state_dict(self) -> dict[str, Any]:
        """Return ``num_steps``, the committed steps."""
        return {"num_steps": self._num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Selector.load_state_dict`."""
        self._num_steps, self._used = int(state["num_steps"]), False


def multi_sampling(magnitudes: Tensor, k: int, place: float) -> Tensor:
    """Choose k of n elements by two thresholds (Algorithm 1).

    The paper starts both thresholds at 0, which sends everything if no round finds fewer than k. Here the high one
    starts above the largest magnitude.

    Args:
        magnitudes: float32 [n].
        k: At most n.
        place: In [0, 1): where the run of elements between the thresholds begins.

    Returns:
        int32 [k], ascending.
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
