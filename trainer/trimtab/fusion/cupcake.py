"""Cupcake (Wang, Wu, Xu, Ng: MLSys 2023): fuse so that compressing costs less than it saves."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.fusion.base import BufferCosts
from trimtab.fusion.best_cuts import best_begins
from trimtab.fusion.run_times import RunTimes
from trimtab.plan.profile import Profile


def cupcake(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """The cuts with which a step ends soonest where compressing a buffer halts the backward pass.

    The paper's objective: compression shares the device with backward, and what each call costs is to be spread over
    several tensors. The search is ours: dynamic programming, which is exact for its model.
    """
    times = RunTimes(profile, tensor_sizes, costs)
    return times.cuts(best_begins(times, compression_halts_backward=True))
