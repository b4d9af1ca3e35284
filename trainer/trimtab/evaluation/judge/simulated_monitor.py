"""The network monitor of a virtual training run: what it measures is late and noisy."""

from __future__ import annotations

import random
from math import exp, log

from trimtab_api.netmon.view import NetworkView

from trimtab.control.controller import Controller
from trimtab.evaluation.judge.simulated_cluster import SimulatedCluster

#: Seconds between two measurements of latency, and of bandwidth.
_LATENCY_SECONDS, _BANDWIDTH_SECONDS = 1.0, 4.0
#: Logarithm of the change of latency after which bandwidth is measured at once.
_JUMP = 0.2


class SimulatedMonitor:
    """Tells a controller of a cluster's network, by a virtual clock."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"monitor {seed}")
        self._next_view = 0.0
        self._probe_at: float | None = None
        self._bandwidth_seen: float | None = None
        self._next_bandwidth = 0.0
        self._latency_seen: float | None = None
        self._revision = 0
        self.has_news = False
        """True if the monitor has spoken since this was last cleared."""

    def advance(self, now: float, cluster: SimulatedCluster, controller: Controller) -> None:
        """Measure up to ``now``, in seconds.

        Latency is measured every second, bandwidth every four: sooner when latency jumps, or on request.
        """
        delay = cluster.monitor_delay
        if self._probe_at is None and controller.drift.asks_to_measure(now):
            self._probe_at = now + delay
            self._next_view = min(self._next_view, self._probe_at)
            self._next_bandwidth = self._probe_at
        while self._next_view <= now:
            at = self._next_view
            was_asked_for = self._probe_at is not None and at >= self._probe_at
            if was_asked_for:
                self._probe_at = None
            truth = cluster.network(max(0.0, at - delay))
            latency = truth.latency * self._noise(cluster)
            jumped = self._latency_seen is None or abs(log(latency / self._latency_seen)) > _JUMP
            if self._bandwidth_seen is None or jumped or at >= self._next_bandwidth:
                self._bandwidth_seen = truth.bandwidth * self._noise(cluster)
                self._next_bandwidth = at + _BANDWIDTH_SECONDS
            self._latency_seen = latency
            self._revision += 1
            controller.observe_network(NetworkView(self._revision, latency, self._bandwidth_seen), at)
            self.has_news = True
            if was_asked_for:
                controller.drift.measured()
            self._next_view = at + _LATENCY_SECONDS

    def _noise(self, cluster: SimulatedCluster) -> float:
        return exp(self._rng.gauss(0, cluster.monitor_noise))
