"""How soon the operator checks again whether an obstacle has gone: no watch reports that."""

from __future__ import annotations

#: Shortest and longest time between two checks, seconds.
FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0
#: Between these bounds the operator waits this share of the time for which the job has been blocked.
SHARE = 0.1


def seconds_to_next_check(waiting_seconds: float) -> float:
    """Seconds until the next check, after ``waiting_seconds`` of waiting: most obstacles go at once or stay long."""
    return min(LONGEST_SECONDS, max(FIRST_SECONDS, SHARE * waiting_seconds))
