"""Immutable measurements of each directed link, and the rules for what counts as a change."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

#: Relative change of a measurement that is published as a new revision.
MATERIAL_CHANGE = 0.05
#: Seconds of latency that are noise, however large beside a tiny latency.
LATENCY_NOISE = 100e-6
#: Relative difference of two links' bandwidths that makes neither the slower one.
SAME_LINK = 0.1


class Method(enum.Enum):
    """How a value was measured; numbered as in netmon.proto. NONE: not measured, or by a method unknown here."""

    NONE = 0
    UDP_ECHO = 1
    IPERF3 = 2
    IPERF3_SHARED = 3
    NATIVE = 4
    NATIVE_SHARED = 5


@dataclass(frozen=True)
class Measurement:
    """One measured value."""

    value: float = 0.0
    """Seconds or bytes per second; 0: not measured yet."""
    method: Method = Method.NONE
    measured_at: float = 0.0
    """Seconds since the Unix epoch, for people: the clock may have been set since."""
    stale: bool = False
    """Not to be trusted: too old, contradicted by later evidence, its tests fail, or its peer no longer answers."""
    age: float = 0.0
    """Seconds since it was last confirmed or changed."""
    is_lower_bound: bool = False
    """The link may carry more."""
    is_outdated: bool = False
    """The network has changed since: what this says is no bound on anything any more."""

    @property
    def is_fresh(self) -> bool:
        """Measured, and to be trusted."""
        return self.value > 0 and not self.stale


@dataclass(frozen=True)
class LinkState:
    """The measurements of the link from ``source`` to ``target``."""

    source: int
    target: int
    latency: Measurement = Measurement()
    """One way, seconds."""
    bandwidth: Measurement = Measurement()
    """Bytes per second."""
    jitter: float = 0.0
    """Seconds."""
    queueing: float = 0.0
    """Seconds."""
    is_unreachable: bool = False
    """The target does not answer."""


@dataclass(frozen=True)
class Summary:
    """The network as synchronous training gets it: the slowest measurements of all links."""

    latency: float = 0.0
    bandwidth: float = 0.0
    jitter: float = 0.0
    stale: bool = True
    latency_age: float = 0.0
    bandwidth_age: float = 0.0
    """Seconds, of the slowest link's measurements."""
    method: Method = Method.NONE
    """How that link's bandwidth was measured."""
    is_lower_bound: bool = False
    """That link may carry more."""

    def differs_from(self, before: Summary) -> bool:
        """Return whether the summary differs in more than its age."""
        return (self.latency, self.bandwidth, self.stale, self.is_lower_bound) != (
            *(before.latency, before.bandwidth, before.stale, before.is_lower_bound),
        )


def moved(old: float, new: float, share: float = MATERIAL_CHANGE, noise: float = 0.0) -> bool:
    """Return whether ``new`` differs from ``old`` by more than a share of it, and by more than noise."""
    return abs(new - old) > max(share * old, noise)


def apply_hysteresis(published: LinkState, current: LinkState) -> LinkState:
    """Return the state to publish: the current one, but a published value stays until it moves materially."""
    return replace(
        current,
        latency=_settle_measurement(published.latency, current.latency, LATENCY_NOISE),
        bandwidth=_settle_measurement(published.bandwidth, current.bandwidth, 0.0),
    )


def _settle_measurement(published: Measurement, current: Measurement, noise: float) -> Measurement:
    if published.value == 0:
        return current
    if current.value == 0:  # its peer has begun anew: what was known of the link still stands, but for what it is
        return replace(published, stale=True)
    if moved(published.value, current.value, noise=noise):
        return current
    return replace(current, value=published.value)


def is_new(published: LinkState, settled: LinkState) -> bool:
    """Return whether a settled state differs from the published one in what a revision promises to show."""
    return any(
        (old.value, old.stale) != (new.value, new.stale)
        for old, new in ((published.latency, settled.latency), (published.bandwidth, settled.bandwidth))
    )


def summarize(links: list[LinkState], num_workers: int, previous: Summary, is_settling: bool = False) -> Summary:
    """Return the slowest of the measurements, and whether it is one to trust.

    Bandwidth falls at once, but rises only when every worker has been measured anew both sending and receiving: after
    a change, the first few links do not speak for the rest. Meanwhile (``is_settling``) what is known so far is not
    stale. A link that cannot be measured any more keeps its last measurements in the summary. A summary that rests on
    them is stale: a slowest link that dies is no improvement.
    """
    if num_workers == 1:
        return Summary(stale=False)
    latencies = [link.latency for link in links if link.latency.value > 0]
    latency = max(latencies, key=_value, default=Measurement(previous.latency))
    fresh = [link for link in links if link.bandwidth.is_fresh]
    is_covered = len({link.source for link in fresh}) == len({link.target for link in fresh}) == num_workers
    known = [link.bandwidth for link in links if link.bandwidth.value > 0 and not link.bandwidth.is_outdated]
    slowest = min(known, key=_value, default=Measurement(previous.bandwidth, stale=True))
    slowest_fresh = min((link.bandwidth for link in fresh), key=_value, default=slowest)
    if slowest.stale and not moved(slowest_fresh.value, slowest.value, SAME_LINK):
        slowest = slowest_fresh  # an old measurement that says nothing else is not missed
    bandwidth = slowest.value if is_covered else min(slowest.value, previous.bandwidth)
    rests_on_old = slowest.stale or not (is_covered or is_settling)
    return Summary(
        latency=latency.value,
        bandwidth=bandwidth,
        jitter=max((link.jitter for link in links), default=0.0),
        stale=bandwidth == 0 or rests_on_old or not all(link.latency.is_fresh for link in links),
        latency_age=latency.age,
        bandwidth_age=slowest.age,
        method=slowest.method,
        is_lower_bound=slowest.is_lower_bound,
    )


def _value(measurement: Measurement) -> float:
    return measurement.value
