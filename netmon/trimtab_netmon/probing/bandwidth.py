"""Bandwidth from byte counters: when a test has seen enough, and what a link carries.

The job's own traffic does not stop for a test, and beside it iperf3 gets only a part of the link. But test and traffic
together fill the link, so the interfaces' counters tell its bandwidth. Pure: samples go in, decisions come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_netmon.links.measurements import Method

#: Seconds over which a rate is taken. Over less, single packets and late wake-ups distort it.
RATE_WINDOW = 0.3
#: Seconds of each of the three windows whose rates must agree before a rate counts as settled.
SETTLE_WINDOW = 0.1
#: Round trips that slow start may take to fill a link.
SETTLE_ROUND_TRIPS = 8
#: Seconds of its own data after which a test that meets the expected rate has seen enough.
CONFIRM_AFTER = 0.3
#: Seconds that a test lasts at most, wherever it runs.
TEST_LIMIT = 3.0
#: Seconds of its own data, plus twice the round trips of slow start, after which a test ends unsettled.
UNSETTLED_LIMIT = 1.0
#: Two rates within this share of each other are the same.
SAME_RATE = 0.05
#: More than this share beside the test's own flows is traffic of the job.
SHARED_BEYOND = 0.15
#: A test that is to confirm an expected rate has this many times the bytes under way that fill such a link.
HEADROOM = 1.25
#: Seconds by which a busy machine's processes lengthen a round trip.
SCHEDULING = 0.010
#: Least bytes under way that a test is limited to.
LEAST_UNDER_WAY = 1 << 18
#: A measurement that differs from the expected one by less than this share confirms it.
CONFIRMS_WITHIN = 0.1
#: A test with more than this share of the allowed bytes under way may have been held down by that limit rather than by
#: the link: on a starved machine a round trip under load takes several times `SCHEDULING`.
HELD_DOWN_BEYOND = 1 / 8
#: Seconds between the receiver's samples.
SAMPLE_INTERVAL = 0.025
#: The receiver's host was starved if its samples came, on average, more than this many intervals apart.
STARVED_BEYOND = 3


@dataclass(frozen=True)
class Sample:
    """Two byte counters at one moment of a test."""

    at: float
    """Seconds, by whatever clock."""
    total: int
    """Bytes that passed the interface, all flows together."""
    own: int = 0
    """Bytes that the test's own flows brought."""


@dataclass(frozen=True)
class Rates:
    """Bytes per second that one test saw."""

    received: float
    """Bytes/s that arrived at the receiver's interface at the test's end, all flows together."""
    own: float
    """The part of it that the test's own flows brought."""
    sent_before: float
    """Bytes/s that left the sender's interface just before the test. The rate during the test would mislead: if
    something beyond the interface shapes traffic (a relay, a host's qdisc), a starting test fills the queue there, and
    the interface also counts what still waits in it."""
    sent_throughout: float = float("inf")
    """The least that left the sender's interface in any `SETTLE_WINDOW` while the test's own data flowed.

    A host that is full stays so throughout a test; one whose job only sends in bursts does not.
    """
    was_starved: bool = False
    """The receiver's host was too busy to sample in time, and so perhaps too busy to receive."""
    has_settled: bool = True
    """The rate met what was expected, or stopped rising, before the test's time was over."""


def flowing_in(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples from the test's first own data on."""
    return [sample for sample in samples if sample.own > 0]


def rates_over(samples: Sequence[Sample], window: float) -> tuple[float, float]:
    """Return total and own bytes/s over the last ``window`` seconds; zeros if the samples span less."""
    for first in reversed(samples):
        elapsed = samples[-1].at - first.at
        if elapsed >= window:
            return (samples[-1].total - first.total) / elapsed, (samples[-1].own - first.own) / elapsed
    return 0.0, 0.0


def best_rates(samples: Sequence[Sample]) -> tuple[float, float]:
    """Return total and own bytes/s of the `RATE_WINDOW` with the largest total in which the test's own data flowed.

    The rates are zeros if there is none: while the test's data wait behind the job's, the job's rate tells nothing of
    the link.
    """
    flowing = flowing_in(samples)
    rates = (rates_over(flowing[: end + 1], RATE_WINDOW) for end in range(len(flowing)))
    return max((rate for rate in rates if rate[1] > 0), default=(0.0, 0.0))


def has_seen_enough(samples: Sequence[Sample], expected: float, round_trip: float) -> bool:
    """Return whether a test can stop: its data flow, and the total meets the expected rate or has stopped rising.

    Only samples with the test's own data count, because the job's traffic may be steady long before the test's first
    byte.

    Args:
        samples: The receiver's samples.
        expected: The expected rate, bytes/s.
        round_trip: Seconds.
    """
    flowing = flowing_in(samples)
    if not flowing or flowing[-1].at - flowing[0].at < CONFIRM_AFTER:
        return False
    now, own = rates_over(flowing, CONFIRM_AFTER)
    if own == 0:  # behind the job's messages, or lost: the link may carry anything
        return False
    newest, _ = rates_over(flowing, SETTLE_WINDOW)  # a rate on its way up passes the expected rate, too
    if expected > 0 and abs(now - expected) < SAME_RATE * expected and not is_more(newest, expected):
        return True
    if flowing[-1].at - flowing[0].at < RATE_WINDOW + SETTLE_ROUND_TRIPS * round_trip:
        return False
    # Three windows in a row must agree; under slow start they do not, since it doubles the rate every round trip.
    windows = []
    for back in range(3):
        end = flowing[-1].at - back * SETTLE_WINDOW
        total, _ = rates_over([sample for sample in flowing if sample.at <= end] or flowing[:1], SETTLE_WINDOW)
        windows.append(total)
    return min(windows) > 0 and max(windows) < (1 + SAME_RATE) * min(windows)


def is_over_time(samples: Sequence[Sample], round_trip: float) -> bool:
    """Return whether a test has had its time without settling.

    The job pays for more of it, and its best rate is known.
    """
    flowing = flowing_in(samples)
    limit = min(TEST_LIMIT, UNSETTLED_LIMIT + 2 * SETTLE_ROUND_TRIPS * round_trip)
    return bool(flowing) and flowing[-1].at - flowing[0].at > limit


def was_starved(samples: Sequence[Sample]) -> bool:
    """Return whether the receiver sampled much more rarely than it should."""
    return samples[-1].at - samples[0].at > STARVED_BEYOND * SAMPLE_INTERVAL * max(1, len(samples) - 1)


def has_risen(samples: Sequence[Sample], expected: float) -> bool:
    """Return whether more arrives than the expected rate."""
    now, _ = rates_over(flowing_in(samples), CONFIRM_AFTER)
    return is_more(now, expected)


def is_more(rate: float, expected: float) -> bool:
    """Return whether a rate is more than the expected rate allows."""
    return rate > (1 + CONFIRMS_WITHIN) * expected


def under_way(expected: float, round_trip: float) -> int:
    """Return the bytes that a test keeps under way to confirm an expected rate.

    They fill the link, and little more. A test that sends all it can leaves a queue behind, in which the job's own
    messages wait long after the test is over (0.4 s on an emulated 1 Gbit/s, 0.8 s on 100 Mbit/s).
    """
    return max(LEAST_UNDER_WAY, round(HEADROOM * expected * (round_trip + SCHEDULING)))


def was_held_down(bandwidth: float, rates: Rates, limit: int, expected: float, round_trip: float) -> bool:
    """Return whether a test with at most ``limit`` bytes under way may have found less than the link carries.

    If more arrives than the expected rate, the limit alone may keep the test's own part small: beside training, a link
    ten times as fast as expected once looked unchanged.

    Args:
        bandwidth: The result of the test, bytes/s.
        rates: The rates that the test saw.
        limit: Most bytes under way.
        expected: The expected rate, bytes/s.
        round_trip: Seconds at the test's end: the network may have changed since an earlier one determined the limit.
    """
    if min(bandwidth, rates.received) < (1 - CONFIRMS_WITHIN) * expected:
        return rates.was_starved or rates.own * (round_trip + SCHEDULING) > HELD_DOWN_BEYOND * limit
    return is_more(max(bandwidth, rates.received), expected)


def is_lower_bound(bandwidth: float, rates: Rates, expected: float) -> bool:
    """Return whether the link may carry more than a test found; a test that confirmed the expected rate is no bound."""
    return bandwidth != expected and (rates.was_starved or not rates.has_settled)


def judge(rates: Rates, expected: float) -> tuple[float, Method]:
    """Return the bandwidth of a link, in bytes/s, by the rates that a test saw.

    On an otherwise idle link it is what arrived. Beside other traffic the test shows two bounds: the link carries at
    least what the test's own flows got, and at most that plus the traffic that they displaced at one of the two ends.
    An expected measurement between the bounds stands, so that traffic alone never changes it, and so does one that its
    own flows exceed by no more than two tests of one link differ: once they got all of a link of 100 Mbit/s that was
    expected to carry 99, and what its receiver was sent by others beside them made it one of 114. Otherwise the rate at
    the busier end is taken, since one of the two ends was full. What the job sent counts only as far as the sender went
    on sending as much: a burst to other hosts, just before the test, once made a link of 25 Mbit/s look like one of 33.
    """
    upper = max(rates.received, rates.own + rates.sent_before)
    beside = max(rates.received - rates.own, rates.sent_before)
    method = Method.IPERF3 if beside <= SHARED_BEYOND * rates.received else Method.IPERF3_SHARED
    is_idle = method is Method.IPERF3
    exceeds = rates.own > expected if is_idle else is_more(rates.own, expected)
    if not exceeds and expected <= (1 + SAME_RATE) * upper:
        return expected, method
    if is_idle:
        return rates.received, method
    return max(rates.received, min(rates.sent_before, rates.sent_throughout)), method
