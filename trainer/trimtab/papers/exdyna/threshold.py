"""The threshold that k elements should reach, in ExDyna (section IV-D): one for all ranks, scaled by what it achieved.

Every rank knows how many elements all of them selected, so all scale the threshold alike without a message.
"""

from __future__ import annotations

import math
from collections.abc import Callable

#: No threshold is below the smallest positive float32: zeros are never selected.
SMALLEST = 2.0**-149
#: The paper's rule (Algorithm 5): beta, how far the count may be off, and gamma, by how much the threshold then moves.
TOLERATED, STEP = 1.1, 0.005
#: Ours: the power of k'/k by which the threshold moves, about what k'/k moves it by where the tail of magnitudes is
#: an exponential's, and the most that it moves by in a step.
POWER, LEAST_SCALE, MOST_SCALE = 0.1, 0.95, 1.05


def scale_as_published(selected: int, k: int) -> float:
    """Algorithm 5: by 0.5% up or down, and by a quarter of that up where the count is within 10%."""
    ratio = selected / k
    if ratio > TOLERATED:
        return 1 + STEP
    return 1 + STEP / 4 if ratio > 1 / TOLERATED else 1 - STEP


def scale_by_count(selected: int, k: int) -> float:
    """(k'/k)^0.1, within 5%: a count that is twice too large moves the threshold at once by as much as may be."""
    return min(MOST_SCALE, max(LEAST_SCALE, math.pow(selected / k, POWER)))


#: By the name of the option.
RULES: dict[str, Callable[[int, int], float]] = {
    "bounded": scale_by_count,
    "scaled": scale_by_count,
    "paper": scale_as_published,
}


def mean_of(thresholds: list[float]) -> float:
    """What ranks that selected by different thresholds take for one: their geometric mean, `SMALLEST` at least."""
    return math.exp(sum(math.log(max(SMALLEST, each)) for each in thresholds) / len(thresholds))
