"""How long steps take under a timetable, by the times of their buckets: what planners compare orders by.

Computing goes on beside compressing, one buffer after another, and beside each link, one exchange after another. What
may arrive by the next forward pass is waited for bucket by bucket there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from trimtab.schedule.step_times import StepTimes
from trimtab.timetable import Iteration, Timetable

#: Iterations that are averaged over, at least and at most, after as many in which what crosses steps has settled.
_FEWEST, _MOST = 4, 12


def step_seconds(times: StepTimes, timetable: Timetable) -> float:
    """Mean seconds of a step once the timetable has settled, over its cycles, or over the first part of a long one."""
    cycles = -(-_FEWEST // len(timetable.cycle))
    iterations = (timetable.cycle * cycles)[:_MOST]
    clock = _Clock(times)
    for iteration in iterations:
        clock.run(iteration)
    begin = clock.now
    for iteration in iterations:
        clock.run(iteration)
    return (clock.now - begin) / len(iterations)


class _Clock:
    """Where computing, the thread that compresses and each link's thread are."""

    def __init__(self, times: StepTimes) -> None:
        self._times = times
        self._complete = list(accumulate(times.backward))
        self.now = 0.0
        """When the iteration begins, after the optimizer has stepped."""
        self._compressed = 0.0
        self._free: dict[int, float] = {}
        """By link: when it is free."""
        self._needed = [0.0] * len(times.wire)
        """When what the forward pass needs of each bucket has arrived."""

    def run(self, iteration: Iteration) -> None:
        """One iteration."""
        begin = self.now
        for bucket in reversed(range(len(self._needed))):
            self.now = max(self.now, self._needed[bucket]) + self._times.forward[bucket]
        backward = self.now
        self.now += self._complete[-1]
        end, carrier = self.now, _carrier(iteration)
        for index, send in enumerate(iteration.sends):
            ready = begin if index != carrier else backward
            if send.generation == 0:
                ready = end if send.after == "backward" else backward + self._complete[send.bucket]
            if index == carrier < len(iteration.sends) - 1:
                ready = max(ready, end)
            arrived = self._exchange(send.bucket, send.link, ready)
            if send.arrives == "update" or index == carrier:
                self.now = max(self.now, arrived)
            self._needed[send.bucket] = arrived

    def _exchange(self, bucket: int, link: int, ready: float) -> float:
        self._compressed = max(self._compressed, ready) + self._times.compress[bucket]
        seconds = self._times.wire[bucket] * self._times.link_slowness[link]
        self._free[link] = max(self._free.get(link, 0.0), self._compressed) + seconds
        return self._free[link]


def _carrier(iteration: Iteration) -> int:
    """Which of the sends carries the vote (`trimtab.timetable.Iteration`)."""
    due: Sequence[int] = [index for index, send in enumerate(iteration.sends) if send.arrives == "update"]
    return due[-1] if due else 0
