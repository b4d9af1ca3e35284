"""Knapsacks whose items are exchanges and whose capacity is computing time (DeFT, section III; its Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

#: Capacity is counted in so many units, and each item in whole ones, rounded up.
_UNITS = 10_000

Order = tuple[int, ...]
"""Items that were chosen, by index, in order."""
Orders = tuple[Order, ...]
"""Those of each link."""
Fill = Callable[[Sequence[float], Sequence[float]], Orders]
"""From the weights of items and the seconds that there are on each link to the items that it takes."""


def knapsack(weights: Sequence[float], capacity: float) -> Order:
    """The items that fill the capacity best: Problem 1 of the paper, profit and weight being the same seconds.

    Over the capacity, and short of the best choice, by at most a ten-thousandth of it for each item: so that items
    which fill it exactly do, however they are rounded.
    """
    if capacity <= 0:
        return ()
    unit = capacity / _UNITS
    sizes = [max(1, ceil(weight / unit)) if weight <= capacity else len(weights) + _UNITS + 1 for weight in weights]
    reachable = [1]  # after each item: a bit for every sum that some of the items so far have
    mask = (1 << (_UNITS + len(weights) + 1)) - 1  # each item's rounding up takes less than a unit
    for size in sizes:
        reachable.append((reachable[-1] | reachable[-1] << size) & mask)
    total = reachable[-1].bit_length() - 1
    chosen = []
    for item in reversed(range(len(sizes))):
        if not reachable[item] >> total & 1:
            chosen.append(item)
            total -= sizes[item]
    return tuple(reversed(chosen))


def two_knapsacks(weights: Sequence[float], seconds: Sequence[float], speed_ratio: float) -> Orders:
    """Items for a fast link and for one that is ``speed_ratio`` times slower, for so many ``seconds`` of each.

    Problem 2 by the paper's greedy rule: the smaller knapsack first, the longest item that still fits before others.
    Weights are seconds on the fast link, so that the slow link's knapsack holds seconds / speed_ratio.
    """
    left = {0: seconds[0], 1: seconds[1] / speed_ratio}
    taken: dict[int, list[int]] = {0: [], 1: []}
    waiting = sorted(range(len(weights)), key=lambda item: (-weights[item], item))
    for link in sorted(left, key=lambda link: left[link]):
        for item in waiting[:]:
            if weights[item] <= left[link]:
                left[link] -= weights[item]
                taken[link].append(item)
                waiting.remove(item)
    return tuple(sorted(taken[0])), tuple(sorted(taken[1]))


def recursive_knapsack(
    weights: Sequence[float], steps: Sequence[float], seconds: Sequence[float], fill: Fill
) -> Orders:
    """Of items that become ready one after another, those that fill the time that is left (Algorithm 1).

    ``seconds`` of each link are left when the first item is ready; ``steps[i]`` is the time from item i to item i + 1.
    An order that leaves the first items out begins later, so it has less time; the fullest is taken, of equals the
    latest.
    """
    best, filled = fill((), seconds), 0.0
    for first in range(len(weights)):
        orders = tuple(tuple(first + item for item in order) for order in fill(weights[first:], seconds))
        weight = sum(weights[item] for order in orders for item in order)
        if weight >= filled:
            best, filled = orders, weight
        seconds = [each - steps[first] for each in seconds]
    return best
