"""Networks that nobody tuned for, to judge a controller on."""

from __future__ import annotations

import random
from math import exp, log

from trimtab_api.units import format_bandwidth, format_duration, parse_bandwidth, parse_duration

from trimtab_netmon.emulate.schedule import Network, Phase

#: Seconds one way.
LATENCIES = (0.2e-3, 30e-3)
#: Bytes per second.
BANDWIDTHS = (parse_bandwidth("50Mbps"), parse_bandwidth("1Gbps"))
#: Seconds.
DURATIONS = (10.0, 20.0)


def random_network(seed: int, seconds: float = 60.0) -> Network:
    """Draw a network: phases of 10 to 20 s until ``seconds`` are filled, with latency and bandwidth from a log scale.

    The same seed gives the same network. Every quantity has three significant digits, so that `write_network` writes it
    exactly.
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
