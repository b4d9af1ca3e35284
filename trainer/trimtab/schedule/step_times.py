"""What one step takes, bucket by bucket: computing forward and backward, compressing, crossing the network.

What is predicted of a schedule here serves only to compare the orders that one planner considers. The buckets are in
backward order, and forward passes need them in the opposite one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from trimtab.profile import Profile

#: A forward pass costs half a backward pass where it was not measured.
_FORWARD_SHARE = 1 / 2


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
    """Of each link, of which there are one or two: how much longer an exchange takes on it than on the first."""

    def taking(self, seconds: float) -> StepTimes:
        """The same where all of the computation takes so long."""
        scale = seconds / (sum(self.forward) + sum(self.backward))
        forward, backward = (tuple(scale * each for each in part) for part in (self.forward, self.backward))
        return replace(self, forward=forward, backward=backward)

    def exchanging(self, compress: Sequence[float], wire: Sequence[float]) -> StepTimes:
        """The same with other exchanges."""
        return replace(self, compress=tuple(compress), wire=tuple(wire))

    @property
    def crossing(self) -> tuple[float, ...]:
        """What each takes of the first link's time: compressing one bucket hides behind another that is on the wire."""
        return tuple(max(each) for each in zip(self.compress, self.wire, strict=True))

    @property
    def coverage_rate(self) -> float:
        """Exchanges over computation: above 1 not all of them can hide behind it (DeFT, section I)."""
        return sum(self.crossing) / (sum(self.forward) + sum(self.backward))


def step_times(
    profile: Profile,
    tensor_sizes: Sequence[int],
    cuts: Sequence[int],
    compress: Callable[[int], float],
    exchange: Callable[[int], float],
    link_slowness: tuple[float, ...] = (1.0,),
) -> StepTimes:
    """The times of buckets that begin at ``cuts``; ``compress`` and ``exchange``: seconds of one of so many elements.

    A module's forward time is that of the bucket which it waits for last: the one that holds its first element. A
    bucket is complete with the last tensor that it holds a part of.
    """
    stops = list(accumulate(tensor_sizes))
    complete = list(accumulate(profile.tensor_backward_seconds))
    ends = [*cuts[1:], stops[-1]]
    ready = [complete[bisect_left(stops, end)] for end in ends]
    backward = [end - begin for begin, end in zip([0.0, *ready], ready, strict=False)]
    sizes = [end - start for start, end in zip(cuts, ends, strict=True)]
    return StepTimes(
        _forward(profile, cuts, backward),
        tuple(backward),
        tuple(map(compress, sizes)),
        tuple(map(exchange, sizes)),
        link_slowness,
    )


def _forward(profile: Profile, cuts: Sequence[int], backward: Sequence[float]) -> tuple[float, ...]:
    forward = [0.0] * len(cuts)
    for module in profile.modules:
        forward[bisect_right(cuts, module.start) - 1] += module.forward_seconds
    if not any(forward):
        return tuple(_FORWARD_SHARE * seconds for seconds in backward)
    return tuple(forward)
