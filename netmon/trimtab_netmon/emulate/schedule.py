"""An emulated network: phases of latency and bandwidth over time (`network_file`: as a file); and random ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import exp, log

from trimtab_api.errors import UserError
from trimtab_api.units import format_bandwidth, format_duration, parse_bandwidth, parse_duration

#: Bounds of random networks: seconds one way,
LATENCIES = (0.2e-3, 30e-3)
#: bytes per second, and
BANDWIDTHS = (parse_bandwidth("50Mbps"), parse_bandwidth("1Gbps"))
#: seconds of a phase.
DURATIONS = (10.0, 20.0)


@dataclass(frozen=True)
class Link:
    """The particulars of one directed link."""

    source: int
    destination: int
    latency: float | None = None
    """Seconds one way; None: the phase's."""
    bandwidth: float | None = None
    """Bytes per second, beside the limits of its two hosts; None: no limit of its own."""


@dataclass(frozen=True)
class Phase:
    """The network for a while."""

    duration: float
    """Seconds."""
    latency: float
    """Seconds one way, of every link that `links` does not name."""
    bandwidth: float
    """Bytes per second, of every host that `hosts` does not name; out and in alike, shared by all flows of the host."""
    hosts: Mapping[int, float] = field(default_factory=dict)
    """Bytes per second of particular hosts."""
    links: tuple[Link, ...] = ()

    def host_bandwidth(self, host: int) -> float:
        """Return the bytes per second that a host can send, and as much that it can receive."""
        return self.hosts.get(host, self.bandwidth)

    def link_latency(self, source: int, destination: int) -> float:
        """Return the seconds one way from one host to another."""
        link = self._link(source, destination)
        return self.latency if link is None or link.latency is None else link.latency

    def link_bandwidth(self, source: int, destination: int) -> float | None:
        """Return the bytes per second that one link may carry, whatever its hosts could; None: no limit of its own."""
        link = self._link(source, destination)
        return link.bandwidth if link else None

    def _link(self, source: int, destination: int) -> Link | None:
        return next((link for link in self.links if (link.source, link.destination) == (source, destination)), None)


@dataclass(frozen=True)
class Network:
    """A schedule of phases."""

    phases: tuple[Phase, ...]
    repeat: bool = False
    file: str = field(default="", compare=False)
    """The file that the network was read from, for error messages."""

    @property
    def duration(self) -> float:
        """Seconds until the last phase has ended once."""
        return sum(phase.duration for phase in self.phases)

    def at(self, seconds: float) -> Phase:
        """Return the phase in force so many seconds after the beginning; a phase begins when the one before it ends."""
        if self.repeat:
            seconds %= self.duration
        for phase in self.phases:
            if seconds < phase.duration:
                return phase
            seconds -= phase.duration
        return self.phases[-1]

    def check_hosts(self, num_hosts: int) -> None:
        """Check that the network names only hosts among ``num_hosts``.

        Raises:
            UserError: If it names another host.
        """
        for path, host in self._hosts_named():
            if host >= num_hosts:
                raise UserError(
                    f"there are {num_hosts} hosts, 0 to {num_hosts - 1}", field=path, value=str(host), file=self.file
                )

    def _hosts_named(self) -> Iterator[tuple[str, int]]:
        for i, phase in enumerate(self.phases):
            for host in phase.hosts:
                yield f"phases[{i}].hosts", host
            for j, link in enumerate(phase.links):
                yield f"phases[{i}].links[{j}].from", link.source
                yield f"phases[{i}].links[{j}].to", link.destination


def random_network(seed: int, seconds: float = 60.0) -> Network:
    """Draw a network that nobody tuned for, to judge a controller on.

    Phases of 10 to 20 s fill ``seconds``; their latency and bandwidth are drawn from a log scale. The same seed gives
    the same network. Every quantity has three significant digits, so that `write_network` writes it exactly.
    """
    draw = random.Random(seed)
    phases: list[Phase] = []
    while sum(phase.duration for phase in phases) < seconds:
        phases.append(
            Phase(
                duration=parse_duration(format_duration(draw.uniform(*DURATIONS))),
                latency=parse_duration(format_duration(_log_uniform(draw, LATENCIES))),
                bandwidth=parse_bandwidth(format_bandwidth(_log_uniform(draw, BANDWIDTHS))),
            )
        )
    return Network(tuple(phases))


def _log_uniform(draw: random.Random, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return exp(draw.uniform(log(low), log(high)))
