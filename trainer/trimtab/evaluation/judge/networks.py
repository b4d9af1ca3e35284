"""The networks that the judge trains on."""

from __future__ import annotations

from trimtab_api.units import parse_bandwidth, parse_duration
from trimtab_netmon.emulate import Network, random_network
from trimtab_netmon.emulate.schedule import Phase

#: Phases of Flexible Communication's C1 and C2, scaled as examples/networks/c1.yaml says; the demo's repeats.
_PHASES = {
    "C1": ("14.4s 500us 1Gbps", "14.4s 500us 40Mbps", "14.4s 25ms 40Mbps", "16.8s 25ms 1Gbps"),
    "C2": ("14.4s 500us 1Gbps", "9.6s 3.54ms 200Mbps", "9.6s 25ms 40Mbps", "9.6s 3.54ms 200Mbps", "16.8s 500us 1Gbps"),
    "demo": ("7s 1ms 1Gbps", "10s 2ms 100Mbps", "7s 25ms 1Gbps"),
    "fast": ("1min 200us 1Gbps",),
    "far": ("1min 80ms 20Mbps",),
}
_REPEATING = {"demo"}


def networks(seed: int) -> dict[str, Network]:
    """Return the networks by name; the one that is random is drawn by ``seed``."""
    known = {
        name: Network(tuple(_phase(*each.split()) for each in phases), repeat=name in _REPEATING)
        for name, phases in _PHASES.items()
    }
    return known | {"random": random_network(seed)}


def _phase(duration: str, latency: str, bandwidth: str) -> Phase:
    return Phase(parse_duration(duration), parse_duration(latency), parse_bandwidth(bandwidth))
