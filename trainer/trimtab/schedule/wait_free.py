"""Wait-free backpropagation (Poseidon, section 3.1; the order of DistributedDataParallel): send what is complete."""

from __future__ import annotations

from trimtab.plan.timetable import Iteration, Send
from trimtab.schedule.base import Schedule


class WaitFree(Schedule):
    """Every bucket is sent, in backward order, as soon as backward has filled it and those before it."""

    name = "wait-free"

    def iteration(self, t: int) -> Iteration:
        """See `Schedule.iteration`."""
        return Iteration(tuple(Send(bucket, t) for bucket in range(self.num_buckets)), update=t)
