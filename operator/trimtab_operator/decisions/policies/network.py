"""When a job's network counts as degraded: measured against the best it has been for this job of late.

The best decays: a job that moved to a slower network, or a limit that was lowered for good, would be degraded for ever.
"""

from __future__ import annotations

#: Bandwidth below this share of the best is degraded, and stays so until it is back above the second share.
DEGRADED_BELOW = 0.5
RECOVERED_ABOVE = 0.7
#: Seconds in which half of what the best has above the present bandwidth is forgotten.
HALF_LIFE_SECONDS = 6 * 3600.0


def best_of_late(best_bandwidth: float, bandwidth: float, seconds: float) -> float:
    """The best bandwidth, ``seconds`` after it was ``best_bandwidth``; bandwidths in bytes per second."""
    if best_bandwidth <= bandwidth:
        return bandwidth
    kept: float = 0.5 ** (max(0.0, seconds) / HALF_LIFE_SECONDS)
    return min(best_bandwidth, bandwidth + (best_bandwidth - bandwidth) * kept)  # a sum of floats may be above either


def is_degraded(was_degraded: bool, bandwidth: float, best_bandwidth: float) -> bool:
    """Whether the slowest link is much slower than it has been; bandwidths in bytes per second."""
    share = bandwidth / best_bandwidth if best_bandwidth > 0 else 1.0
    return share < (RECOVERED_ABOVE if was_degraded else DEGRADED_BELOW)
