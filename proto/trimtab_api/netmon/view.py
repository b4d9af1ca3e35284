"""What a trainer sees of its network: the client fills it; the controller, the status and metrics read it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LinkView:
    """One directed link between workers."""

    source: int
    target: int
    latency: float
    """One way, seconds; 0: not measured yet."""
    bandwidth: float
    """Bytes per second; 0: not measured yet."""
    latency_stale: bool = False
    bandwidth_stale: bool = False
    """Not to be trusted any more: the network has changed since, or nothing has confirmed it for long."""


@dataclass(frozen=True)
class NetworkView:
    """The slowest link of the job's network, as the controller needs it."""

    revision: int
    """Increases with every material change; 0: nothing measured yet. Starts anew if worker 0's monitor does."""
    latency: float
    """Largest one-way latency of any link, seconds; 0: not measured yet."""
    bandwidth: float
    """Smallest bandwidth of any link, bytes per second; 0: not measured yet."""
    stale: bool = False
    """A figure is missing or not to be trusted, or the monitor does not answer."""
    bandwidth_lower_bound: bool = False
    """The link may carry more: the test was disturbed."""
    bandwidth_method: str = ""
    """How the bandwidth was measured: *iperf3* or *native* on an idle link, *... beside traffic* of the job; empty:
    unknown."""
    latency_since: float = field(default=-math.inf, compare=False)
    bandwidth_since: float = field(default=-math.inf, compare=False)
    """When each was last confirmed or changed, by this host's `time.monotonic`."""
    problem: str = ""
    """The reason why nothing new is measured, in one sentence: a monitor does not answer, or all tests fail; else
    empty."""
    links: tuple[LinkView, ...] = field(default=(), compare=False)
    """Every link, as worker 0's monitor has them."""

    @property
    def bandwidth_age(self) -> float:
        """Seconds since the bandwidth was last confirmed or changed; infinite before it is known."""
        return time.monotonic() - self.bandwidth_since

    @property
    def is_measured(self) -> bool:
        """True if both figures have been measured at least once."""
        return self.latency > 0 and self.bandwidth > 0


#: The view before the monitor has answered.
NOTHING_KNOWN = NetworkView(revision=0, latency=0.0, bandwidth=0.0, stale=True)
