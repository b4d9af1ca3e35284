"""The schedules that need no profile: wait-free, after-backward, overlap; and the one that follows a timetable."""

from __future__ import annotations

from trimtab.plan.schedules.base import Schedule
from trimtab.plan.timetable import Iteration, Send, Timetable


class WaitFree(Schedule):
    """Sends every bucket, in backward order, as soon as backward has filled it and those before it.

    Wait-free backpropagation (Poseidon, section 3.1); the order of DistributedDataParallel.
    """

    name = "wait-free"

    def iteration(self, t: int) -> Iteration:
        """See `Schedule.iteration`."""
        return Iteration(tuple(Send(bucket, t) for bucket in range(self.num_buckets)), update=t)


class AfterBackward(Schedule):
    """Sends every bucket, in backward order, once backward has ended: communication hides behind nothing."""

    name = "after-backward"

    def iteration(self, t: int) -> Iteration:
        """See `Schedule.iteration`."""
        return Iteration(tuple(Send(bucket, t, after="backward") for bucket in range(self.num_buckets)), update=t)


class Overlap(Schedule):
    """Sends the updates of one round of local steps while the next round computes (eager DiLoCo).

    An iteration is a round. It sends what the round before made, and its update is the mean of that; nothing is merged.
    """

    name = "overlap"

    def iteration(self, t: int) -> Iteration:
        """See `Schedule.iteration`."""
        if t == 0:
            return Iteration((), update=None)
        return Iteration(tuple(Send(bucket, t - 1) for bucket in range(self.num_buckets)), update=t - 1)


class Timetabled(Schedule):
    """Follows the iterations that a planner has made on rank 0."""

    name = "timetabled"

    def __init__(self, num_buckets: int, timetable: Timetable) -> None:
        super().__init__(num_buckets)
        self._timetable = timetable
        self.averages = timetable.averages

    def iteration(self, t: int) -> Iteration:
        """See `Schedule.iteration`."""
        return self._timetable.iteration(t)
