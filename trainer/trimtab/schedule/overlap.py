"""Overlap: the updates of one round of local steps cross while the next round computes (eager DiLoCo).

An iteration here is a round. It sends what the round before made, and its update is the mean of that.
"""

from __future__ import annotations

from trimtab.plan.timetable import Iteration, Send
from trimtab.schedule.base import Schedule


class Overlap(Schedule):
    """Every round's updates arrive one round late; nothing is merged."""

    name = "overlap"

    def iteration(self, t: int) -> Iteration:
        """See `Schedule.iteration`."""
        if t == 0:
            return Iteration((), update=None)
        return Iteration(tuple(Send(bucket, t - 1) for bucket in range(self.num_buckets)), update=t - 1)
