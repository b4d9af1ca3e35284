"""Ok-Topk's choice of the k largest sums of all ranks: by a threshold, or by a histogram of magnitudes.

Pure, and the same on every rank that has the same inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimtab.wire.pairs import Pairs

#: A bin keeps a float32's exponent and four bits more, so that it is 3 to 6% wide; the other bits are dropped.
_DROPPED_BITS = 19
_NUM_BINS = 1 << (31 - _DROPPED_BITS)
#: A threshold that so many times k elements have reached goes up by this power of it, and by no more than this factor:
#: a larger one overshoots, for what is held back in one step comes again in the next.
_CORRECTION, _MOST_CORRECTION = 0.1, 1.05


@dataclass(frozen=True)
class Shares:
    """Number of its largest sums that each rank sends on, and the threshold that these reach."""

    of_rank: tuple[int, ...]
    threshold: float

    @property
    def total(self) -> int:
        """Sum over all ranks."""
        return sum(self.of_rank)

    def at_least(self, least: Sequence[int]) -> Shares:
        """Return these shares, raised to ``least`` of each rank."""
        return Shares(tuple(map(max, self.of_rank, least)), self.threshold)


def histogram(magnitudes: Tensor, k: int) -> Pairs:
    """Return the non-empty bins of ``magnitudes`` (float32 [m]), as far down as the k largest reach.

    Returns:
        Pairs of bin and count. The counts are the bits of int32, because pairs are what a message holds.
    """
    bins, counts = torch.unique(magnitudes.view(torch.int32) >> _DROPPED_BITS, return_counts=True)
    larger = counts.flip(0).cumsum(0).flip(0) - counts
    reached = larger < k
    return Pairs(bins[reached].to(torch.int32), counts[reached].to(torch.int32).view(torch.float32))


def shares_by_histogram(histograms: Sequence[Pairs], k: int) -> Shares:
    """Choose exactly the k largest; of the bin that holds the k-th, each rank sends its part."""
    counts: NDArray[np.int64] = np.zeros((len(histograms), _NUM_BINS), np.int64)
    for row, pairs in zip(counts, histograms, strict=True):
        row[pairs.indices.cpu().numpy()] = pairs.values.view(torch.int32).cpu().numpy()
    above = np.cumsum(counts[:, ::-1].sum(0))[::-1]  # above[b]: elements in bin b and those over it
    if above[0] <= k:
        occupied = np.flatnonzero(counts.sum(0))
        lowest = _edge(int(occupied[0])) if occupied.size else 0.0
        return Shares(tuple(int(count) for count in counts.sum(1)), lowest)
    last = int(np.flatnonzero(above >= k)[-1])  # the bin that the k-th largest is in
    num_last = counts[:, last]
    wanted = k - int(above[last] - num_last.sum())
    larger = counts[:, last + 1 :].sum(1)
    shares = tuple(int(more) + part for more, part in zip(larger, split(wanted, num_last.tolist()), strict=True))
    low, high = _edge(last), _edge(last + 1)
    return Shares(shares, high - wanted / int(num_last.sum()) * (high - low) if math.isfinite(high) else low)


def shares_by_threshold(counts: Sequence[int], threshold: float, k: int, most: int) -> Shares:
    """Choose all sums that reach the threshold, and correct it.

    Args:
        counts: Sums of each rank that reach the threshold.
        threshold: Carried from the last step.
        k: Elements that should reach it.
        most: Most elements that are sent.
    """
    total = sum(counts)
    factor = (max(1, total) / k) ** _CORRECTION
    corrected = threshold * min(_MOST_CORRECTION, max(1 / _MOST_CORRECTION, factor))
    return Shares(tuple(counts) if total <= most else tuple(split(most, counts)), corrected)


def split(total: int, counts: Sequence[int]) -> list[int]:
    """Split ``total`` in proportion to ``counts``, at most its own count to each; their sum is at least ``total``."""
    ends = np.cumsum([0, *counts]) * total // max(1, sum(counts))
    return [int(part) for part in np.diff(ends)]


def _edge(number: int) -> float:
    """Return the smallest magnitude of a bin."""
    return float(np.array([number << _DROPPED_BITS], np.uint32).view(np.float32)[0])
