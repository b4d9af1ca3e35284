"""DeFT's knapsacks: items are exchanges, capacity is computing time (section III, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

#: Capacity is counted in so many units, and each item in whole ones, rounded up.
_UNITS = 10_000

Order = tuple[int, ...]
"""Chosen items, by index, in order."""
Orders = tuple[Order, ...]
"""Chosen items of each link."""
Fill = Callable[[Sequence[float], Sequence[float]], Orders]
"""Chooses items of each link, from the items' weights and the seconds of each link."""


def knapsack(weights: Sequence[float], capacity: float) -> Order:
    """Return the items that fill the capacity best (Problem 1; profit and weight are the same seconds).

    The result may be over the capacity, and short of the best choice, by at most a ten-thousandth of the capacity for
    each item: so that items which fill it exactly do, however they are rounded.

    Args:
        weights: Seconds of each item.
        capacity: Seconds.
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
    """Return items for a fast link and for a slower one (Problem 2, by the paper's greedy rule).

    The smaller knapsack is filled first, with the longest item that still fits.

    Args:
        weights: Seconds of each item on the fast link.
        seconds: Seconds that there are on each link.
        speed_ratio: How much longer an item takes on the slow link, whose knapsack holds ``seconds[1] / speed_ratio``.
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
    """Return the items that fill the remaining time if they become ready one after another (Algorithm 1).

    An order that leaves the first items out begins later, so it has less time. The fullest order is taken, among equals
    the latest.

    Args:
        weights: Seconds of each item.
        steps: ``steps[i]`` is the time from item i to item i + 1.
        seconds: Seconds of each link that are left when the first item is ready.
        fill: Fills the knapsacks.
    """
    best, filled = fill((), seconds), 0.0
    for first in range(len(weights)):
        orders = tuple(tuple(first + item for item in order) for order in fill(weights[first:], seconds))
        weight = sum(weights[item] for order in orders for item in order)
        if weight >= filled:
            best, filled = orders, weight
        seconds = [left - steps[first] for left in seconds]
    return best
