"""SIDCo: a distribution is fitted to the magnitudes, and again to those beyond its threshold, in stages.

Abdelmoniem et al., An Efficient Statistical-based Gradient Compression Technique, MLSys 2021, section 2 and Algorithm
1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from trimtab import kernels
from trimtab.kernels import FlatGrad
from trimtab.sparsifiers.base import Sent
from trimtab.sparsifiers.threshold_selector import Key, ThresholdSelector

#: The share of what reached a stage's threshold that reaches the next one's; the last stage makes up for the rest.
STAGE_SHARE = 0.25
#: The number of stages is reconsidered after so many calls, and kept where their mean count is this near to k.
CALLS, TOLERANCE = 5, 0.2


@dataclass(frozen=True)
class Stages:
    """The fit of one segment, and its results since it was last reconsidered."""

    num_stages: int = 1
    direction: int = -1
    """Added to the number of stages if too many elements were selected, subtracted if too few."""
    num_calls: int = 0
    sum_of_shares: float = 0.0
    """Sum over these calls of count / k."""
    last_error: float = math.inf
    """|mean count / k - 1| when it was last reconsidered."""

    def after(self, share: float, most: int) -> Stages:
        """Count one more call, and reconsider the number of stages every `CALLS` calls.

        Args:
            share: Elements that reached the threshold, over k.
            most: Largest number of stages.
        """
        counted = replace(self, num_calls=self.num_calls + 1, sum_of_shares=self.sum_of_shares + share)
        return counted if counted.num_calls < CALLS else counted._reconsidered(most)

    def _reconsidered(self, most: int) -> Stages:
        mean = self.sum_of_shares / self.num_calls
        error = abs(mean - 1)
        direction = -self.direction if error > self.last_error else self.direction
        change = 0 if error <= TOLERANCE else direction if mean > 1 else -direction
        if not 1 <= self.num_stages + change <= most:
            direction, change = -direction, -change
        return Stages(max(1, min(most, self.num_stages + change)), direction, last_error=error)


class SIDCo(ThresholdSelector):
    """Selects k / 2 to 2 k elements of each segment, and within 20% of k if the fit is good.

    The paper takes a stage away if too many are selected, which on heavy tails never helps. Here, as in its released
    code, a change that made the error larger is followed by its opposite. By design one stage misses by far: at 0.001,
    nothing of normal gradients reaches its threshold, of Student-t's (3) five times k. A stage is added in every fifth
    call; until there are enough, the count is clamped as `ThresholdSelector` says. Of the paper's three distributions
    the gamma is left out: it needs the mean logarithm, a pass that costs more than all the others.
    """

    name = "sidco"
    lower, upper = 0.5, 2.0

    def __init__(self, *, fit: str) -> None:
        """Set ``fit``: ``exponential`` (SIDCo-E), or ``pareto``, the generalized one (SIDCo-P)."""
        self._quantile = exponential_quantile if fit == "exponential" else pareto_quantile
        self._state: dict[Key, Stages] = {}
        self._proposed: dict[Key, Stages] = {}

    def _threshold(self, grad: FlatGrad, residual: Tensor | None, k: int, key: Key) -> float:
        assert isinstance(grad, Tensor)
        share = k / grad.numel()
        num_stages = min(most_stages(share), self._state.get(key, Stages()).num_stages)
        threshold = 0.0
        for stage in range(num_stages):
            beyond = kernels.tail(grad, threshold)
            if beyond.count < 2:
                break
            passing = STAGE_SHARE if stage < num_stages - 1 else share / STAGE_SHARE ** (num_stages - 1)
            mean = beyond.mean - threshold
            variance = max(0.0, beyond.squares / beyond.count - beyond.mean**2)
            threshold += self._quantile(mean, variance, passing)
        return threshold

    def _reached(self, key: Key, k: int, num_over: int) -> None:
        self._proposed[key] = self._state.get(key, Stages()).after(num_over / k, most_stages(k / key[1]))

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """See `Selector.commit`."""
        self._state.update(self._proposed)
        self._proposed = {}

    def discard(self) -> None:
        """See `Selector.discard`."""
        self._proposed = {}

    def state_dict(self) -> dict[str, Any]:
        """Return ``ranges``: ``[first element, length, stages, direction, calls, sum of shares, last error]`` each."""
        return {
            "ranges": [
                [*key, stages.num_stages, stages.direction, stages.num_calls, stages.sum_of_shares, stages.last_error]
                for key, stages in self._state.items()
            ]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Selector.load_state_dict`."""
        self._proposed = {}
        self._state = {
            (int(first), int(length)): Stages(int(stages), int(direction), int(calls), float(total), float(error))
            for first, length, stages, direction, calls, total, error in state["ranges"]
        }


def most_stages(share: float) -> int:
    """Return the largest number of stages that leaves the last one something to select, at ``share`` = k / n."""
    return 1 + math.floor(math.log(share) / math.log(STAGE_SHARE))


def exponential_quantile(mean: float, variance: float, share: float) -> float:
    """Return the value that ``share`` of an exponential distribution of this mean reach."""
    return -mean * math.log(share)


def pareto_quantile(mean: float, variance: float, share: float) -> float:
    """Return the value that ``share`` of a generalized Pareto distribution reach, fitted by its moments.

    Without a tail it is an exponential distribution.
    """
    ratio = mean * mean / variance if variance > 0 else 1.0
    shape, scale = (1 - ratio) / 2, mean * (ratio + 1) / 2
    if abs(shape) < 1e-6:
        return exponential_quantile(mean, variance, share)
    return scale / shape * math.expm1(-shape * math.log(share))
