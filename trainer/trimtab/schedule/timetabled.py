"""A schedule that does what its plan's timetable says."""

from __future__ import annotations

from trimtab.plan.timetable import Iteration, Timetable
from trimtab.schedule.base import Schedule


class Timetabled(Schedule):
    """Follows iterations that a planner has made on rank 0."""

    name = "timetabled"

    def __init__(self, num_buckets: int, timetable: Timetable) -> None:
        super().__init__(num_buckets)
        self._timetable = timetable
        self.averages = timetable.averages

    def iteration(self, t: int) -> Iteration:
        """See `Schedule.iteration`."""
        return self._timetable.iteration(t)
