"""The long-run mean of times that are alike, pauses among them."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median

#: One time counts for no more than this many medians.
MOST_MEDIANS = 4.0


def clipped_mean(seconds: Iterable[float]) -> float:
    """Return the mean of at least one time, in which an outlier counts for no more than four medians.

    A script that evaluates every few steps makes those steps longer, and each training pays for that as often as it
    steps. A median leaves it out where steps are reported one by one, and keeps it where a round of local steps is
    reported whole: computing then seemed to take longer in rounds, and shorter without. A pause that comes once in a
    thousand steps, for a checkpoint, must not decide over those beside it.
    """
    times = list(seconds)
    most = MOST_MEDIANS * median(times)
    return fmean(min(each, most) for each in times)
