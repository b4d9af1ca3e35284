"""From byte counters to bandwidth: when a test has seen enough, and what a link carries.

The job's own traffic does not stop for a test, and beside it iperf3 gets a part of the link only. But test and traffic
together fill the link, so what passes the interfaces tells its bandwidth. Pure: samples go in, decisions come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_netmon.figures import Method

#: Seconds over which a rate is taken: shorter, and single packets and late wake-ups show.
RATE_WINDOW = 0.2
#: Seconds after which a test that meets the previous figure has seen enough.
CONFIRM_AFTER = 0.25
#: Seconds that a test lasts at most.
TEST_LIMIT = 2.0
#: Two rates within this share of each other are the same.
SAME_RATE = 0.05
#: More than this share beside the test's own flows is traffic of the job.
SHARED_BEYOND = 0.15


@dataclass(frozen=True)
class Sample:
    """A byte counter at one moment."""

    at: float
    """Seconds, by whatever clock."""
    num_bytes: int


@dataclass(frozen=True)
class Traffic:
    """What one test saw at both ends."""

    received: float
    """Bytes per second that arrived at the receiver's interface, all flows together, at their best."""
    own: float
    """Bytes per second of the test's own flows as received, at their best."""
    beside_receiver: float
    """Bytes per second that arrived at the receiver beside the test's flows, over the whole test."""
    beside_sender: float
    """Bytes per second that left the sender beside the test's flows, over the whole test."""


def rate_over(samples: Sequence[Sample], window: float, end: int = -1) -> float:
    """Bytes per second over the last ``window`` seconds before sample ``end``; 0 where there is less than that."""
    last = samples[end]
    for first in reversed(samples):
        if first.at <= last.at - window:
            return (last.num_bytes - first.num_bytes) / (last.at - first.at)
    return 0.0


def mean_rate(samples: Sequence[Sample]) -> float:
    """Bytes per second from the first sample to the last; 0 for fewer than two."""
    if len(samples) < 2:
        return 0.0
    return (samples[-1].num_bytes - samples[0].num_bytes) / (samples[-1].at - samples[0].at)


def best_rate(samples: Sequence[Sample], window: float = RATE_WINDOW) -> float:
    """The largest rate over any ``window`` seconds, bytes per second."""
    return max((rate_over(samples[: end + 1], window) for end in range(len(samples))), default=0.0)


def has_seen_enough(samples: Sequence[Sample], previous: float) -> bool:
    """Whether a test can stop: its rate meets the previous figure, or has stopped rising.

    ``samples`` are the receiver's, from the moment the sender was told to start.
    """
    if not samples:
        return False
    elapsed = samples[-1].at - samples[0].at
    now = rate_over(samples, RATE_WINDOW / 2)
    if elapsed >= CONFIRM_AFTER and previous > 0 and abs(now - previous) < SAME_RATE * previous:
        return True
    # Three windows in a row alike: slow start doubles the rate every round trip, which is not.
    earlier = [_rate_before(samples, back * RATE_WINDOW / 2) for back in (1, 2)]
    return min(earlier) > 0 and max(now, *earlier) < (1 + SAME_RATE) * min(now, *earlier)


def _rate_before(samples: Sequence[Sample], seconds: float) -> float:
    """The rate over the half window that ended ``seconds`` ago."""
    end = samples[-1].at - seconds
    return rate_over([each for each in samples if each.at <= end] or samples[:1], RATE_WINDOW / 2)


def judge(traffic: Traffic, previous: float) -> tuple[float, Method]:
    """What the link carries, bytes per second.

    On an otherwise idle link it is what arrived. Beside other traffic the test shows two bounds: the link carries at
    least what the test's own flows got, and at most what the busier of the two interfaces moved. A previous figure
    between the bounds stands: traffic alone never moves it. Otherwise the upper bound is taken, since one of the two
    interfaces was full.
    """
    if max(traffic.beside_receiver, traffic.beside_sender) <= SHARED_BEYOND * traffic.received:
        return traffic.received, Method.IPERF3
    upper = max(traffic.received, traffic.own + traffic.beside_sender)
    if traffic.own <= previous <= (1 + SAME_RATE) * upper:
        return previous, Method.IPERF3_SHARED
    return upper, Method.IPERF3_SHARED
