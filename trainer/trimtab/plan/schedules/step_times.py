"""Times of one step, bucket by bucket: computing forward and backward, compressing, crossing the network.

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
    """Forward time of the modules that can run once the bucket, and those after it in backward order, have arrived."""
    backward: tuple[float, ...]
    """Time from the previous bucket's completion, or the begin of backward, to this bucket's."""
    compress: tuple[float, ...]
    wire: tuple[float, ...]
    """Time of the exchange on the first link."""
    link_slowness: tuple[float, ...] = (1.0,)
    """For each of the one or two interfaces: an exchange's time on it over that on the first."""
    startup: float | None = None
    """Part of each exchange that is latency, which others may fill; None if links do not share an interface."""

    @cached_property
    def buffers(self) -> BufferTimes:
        """The times on the clock of an iteration."""
        begin = sum(self.forward)
        ready = tuple(begin + seconds for seconds in accumulate(self.backward))
        needed = tuple(accumulate((0.0, *self.forward[:0:-1])))[::-1]
        startup = None if self.startup is None else tuple(min(self.startup, wire) for wire in self.wire)
        return BufferTimes(ready, self.compress, self.wire, needed, begin, self.link_slowness, startup)

    def step_seconds(self, timetable: Timetable) -> float:
        """Return the mean wall time of a step once the timetable has settled."""
        cycle = [(transfers_of(iteration), 1) for iteration in timetable.cycle]
        return mean_iteration_seconds(sum(self.forward) + sum(self.backward), self.buffers, cycle)

    @property
    def crossing(self) -> tuple[float, ...]:
        """Time of the first link that each takes: compressing a bucket hides behind another on the wire."""
        return tuple(max(times) for times in zip(self.compress, self.wire, strict=True))


def step_times(
    profile: Profile,
    tensor_sizes: Sequence[int],
    cuts: Sequence[int],
    compress: Callable[[int], float],
    exchange: Callable[[int], float],
    link_slowness: tuple[float, ...] = (1.0,),
    startup: float | None = None,
) -> StepTimes:
    """Return the times of buckets that begin at ``cuts``.

    A module's forward time is that of the bucket which it waits for last: the one that holds its first element. A
    bucket is complete with the last tensor that it holds a part of.

    Args:
        profile: Measured times of a step.
        tensor_sizes: Elements of each tensor, in backward order.
        cuts: First element of each bucket.
        compress: Seconds of compressing a buffer, by its elements.
        exchange: Seconds of exchanging a buffer, by its elements.
        link_slowness: See `StepTimes`.
        startup: See `StepTimes`.
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
