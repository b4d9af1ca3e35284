"""When a job's network counts as degraded: measured against the best it has been for this job."""

from __future__ import annotations

#: Bandwidth below this share of the best is degraded, and stays so until it is back above the second share.
DEGRADED_BELOW = 0.5
RECOVERED_ABOVE = 0.7


def is_degraded(was_degraded: bool, bandwidth: float, best_bandwidth: float) -> bool:
    """Whether the slowest link is much slower than it has been; bandwidths in bytes per second."""
    share = bandwidth / best_bandwidth if best_bandwidth > 0 else 1.0
    return share < (RECOVERED_ABOVE if was_degraded else DEGRADED_BELOW)
