"""MG-WFBP (Shi, Chu, Li: INFOCOM 2019): merge gradients for the sake of the startups of their exchanges."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.fusion.base import BufferCosts
from trimtab.fusion.merging import merged_begins
from trimtab.fusion.run_times import RunTimes
from trimtab.plan.profile import Profile


def merged_gradients(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """A gradient waits for the next where that comes before the startup that they share has been spent in waiting.

    Made for exchanges without compression: the time that compressing takes is not weighed.
    """
    times = RunTimes(profile, tensor_sizes, costs)
    return times.cuts(merged_begins(times, weighs_compression=False))
