"""The baseline of every schedule: nothing is sent before backward has ended."""

from __future__ import annotations

from trimtab.plan.timetable import Iteration, Send
from trimtab.schedule.base import Schedule


class AfterBackward(Schedule):
    """Every bucket is sent, in backward order, once backward has ended: communication hides behind nothing."""

    name = "after-backward"

    def iteration(self, t: int) -> Iteration:
        """See `Schedule.iteration`."""
        return Iteration(tuple(Send(bucket, t, after="backward") for bucket in range(self.num_buckets)), update=t)
