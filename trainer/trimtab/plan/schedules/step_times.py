"""What one step takes, bucket by bucket: computing forward and backward, compressing, crossing the network.

The buckets are in backward order, and forward passes need them in the opposite one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from trimtab.plan.profile import Profile
from trimtab.plan.timeline import BufferTimes, Readiness, mean_iteration_seconds, transfers_of
from trimtab.plan.timetable import Timetable


@dataclass(frozen=True)
class StepTimes:
    """Seconds of each bucket."""

    forward: tuple[float, ...]
    """Of the modules that can run once the bucket, and those after it in backward order, have arrived."""
    backward: tuple[float, ...]
    """From when the bucket before it was complete, or backward began, until it is."""
    compress: tuple[float, ...]
    wire: tuple[float, ...]
    """On the first link."""
    link_slowness: tuple[float, ...] = (1.0,)
    """Of each interface, of which there are one or two: how much longer an exchange takes on it than on the first."""
    startup: float | None = None
    """What of each exchange is latency that others may fill; None where links do not share an interface."""

    @cached_property
    def buffers(self) -> BufferTimes:
        """The same on the clock of an iteration."""
        begin = sum(self.forward)
        ready = tuple(begin + seconds for seconds in accumulate(self.backward))
        needed = tuple(accumulate((0.0, *self.forward[:0:-1])))[::-1]
        startup = None if self.startup is None else tuple(min(self.startup, wire) for wire in self.wire)
        return BufferTimes(ready, self.compress, self.wire, needed, begin, self.link_slowness, startup)

    def step_seconds(self, timetable: Timetable) -> float:
        """Mean wall time of a step once the timetable has settled."""
        cycle = [(transfers_of(iteration), 1) for iteration in timetable.cycle]
        return mean_iteration_seconds(sum(self.forward) + sum(self.backward), self.buffers, cycle)

    @property
    def crossing(self) -> tuple[float, ...]:
        """What each takes of the first link's time: compressing one bucket hides behind another that is on the wire."""
        return tuple(max(each) for each in zip(self.compress, self.wire, strict=True))


def step_times(
    profile: Profile,
    tensor_sizes: Sequence[int],
    cuts: Sequence[int],
    compress: Callable[[int], float],
    exchange: Callable[[int], float],
    link_slowness: tuple[float, ...] = (1.0,),
    startup: float | None = None,
) -> StepTimes:
    """The times of buckets that begin at ``cuts``; ``compress`` and ``exchange``: seconds of one of so many elements.

    A module's forward time is that of the bucket which it waits for last: the one that holds its first element. A
    bucket is complete with the last tensor that it holds a part of.
    """
    readiness = Readiness.measured(profile, tensor_sizes)
    computing = profile.lead_seconds + profile.backward_seconds
    stops = [*cuts[1:], sum(tensor_sizes)]
    ready = [computing * readiness.of_buffer(stop) for stop in stops]
    needed = [computing * readiness.needed(stop) for stop in stops]
    begin = computing * readiness.backward_begin
    sizes = [stop - start for start, stop in zip(cuts, stops, strict=True)]
    return StepTimes(
        tuple(later - sooner for later, sooner in zip((begin, *needed), needed, strict=False)),
        tuple(later - sooner for sooner, later in zip((begin, *ready), ready, strict=False)),
        tuple(map(compress, sizes)),
        tuple(map(exchange, sizes)),
        link_slowness,
        startup,
    )
