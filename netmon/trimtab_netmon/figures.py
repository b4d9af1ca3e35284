"""What is known of each directed link: immutable figures, and what counts as a change."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

#: Relative change of a figure that is published as a new revision.
MATERIAL_CHANGE = 0.05
#: Seconds of latency that are noise, however large beside a tiny latency.
LATENCY_NOISE = 100e-6


class Method(enum.Enum):
    """How a figure was measured; the values are those of the contract."""

    NONE = 0
    UDP_ECHO = 1
    IPERF3 = 2
    IPERF3_SHARED = 3


@dataclass(frozen=True)
class Figure:
    """One measured figure."""

    value: float = 0.0
    """Seconds or bytes per second; 0: not measured yet."""
    method: Method = Method.NONE
    measured_at: float = 0.0
    """Seconds since the Unix epoch."""
    stale: bool = False
    """Too old to trust, or its peer no longer answers."""

    @property
    def is_fresh(self) -> bool:
        """Measured, and to be trusted."""
        return self.value > 0 and not self.stale


@dataclass(frozen=True)
class LinkState:
    """What is known of the link from ``source`` to ``target``."""

    source: int
    target: int
    latency: Figure = Figure()
    """One way, seconds."""
    bandwidth: Figure = Figure()
    """Bytes per second."""
    jitter: float = 0.0
    """Seconds."""
    queueing: float = 0.0
    """Seconds."""


@dataclass(frozen=True)
class Summary:
    """What synchronous training gets: the slowest figures of all links."""

    latency: float = 0.0
    bandwidth: float = 0.0
    jitter: float = 0.0
    stale: bool = True


def moved(old: float, new: float, share: float = MATERIAL_CHANGE, noise: float = 0.0) -> bool:
    """Whether ``new`` differs from ``old`` by more than a share of it, and by more than noise."""
    return abs(new - old) > max(share * old, noise)


def settle(published: LinkState, current: LinkState) -> LinkState:
    """What to publish next: the current state, but a published figure stays until it has moved materially."""
    return replace(
        current,
        latency=_settle_figure(published.latency, current.latency, LATENCY_NOISE),
        bandwidth=_settle_figure(published.bandwidth, current.bandwidth, 0.0),
    )


def _settle_figure(published: Figure, current: Figure, noise: float) -> Figure:
    if published.value == 0 or moved(published.value, current.value, noise=noise):
        return current
    return replace(current, value=published.value)


def is_new(published: LinkState, settled: LinkState) -> bool:
    """Whether a settled state differs from the published one in what a revision promises to show."""
    return any(
        (old.value, old.stale) != (new.value, new.stale)
        for old, new in ((published.latency, settled.latency), (published.bandwidth, settled.bandwidth))
    )


def summarize(links: list[LinkState], num_workers: int, previous: Summary) -> Summary:
    """The slowest of the fresh figures.

    Bandwidth falls at once, but rises only when every worker has been measured anew both sending and receiving: after
    a change, the first few links do not speak for the rest.
    """
    if num_workers == 1:
        return Summary(stale=False)
    latencies = [link.latency.value for link in links if link.latency.is_fresh]
    fresh = [link for link in links if link.bandwidth.is_fresh]
    is_covered = len({link.source for link in fresh}) == len({link.target for link in fresh}) == num_workers
    bandwidth = min((link.bandwidth.value for link in fresh), default=previous.bandwidth)
    if not is_covered:
        bandwidth = min(bandwidth, previous.bandwidth)
    return Summary(
        latency=max(latencies, default=previous.latency),
        bandwidth=bandwidth,
        jitter=max((link.jitter for link in links), default=0.0),
        stale=bandwidth == 0 or not all(link.latency.is_fresh for link in links),
    )
