"""What is in a job's way: how soon it is looked for again, for nothing tells when it goes."""

from __future__ import annotations

#: Seconds between two looks, at first and at most.
FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0
#: In between, this share of the time for which the job has been waiting.
SHARE = 0.1


def seconds_to_next_look(waiting_seconds: float) -> float:
    """Seconds until the next look: what is going goes at once, and what stays needs no look every second."""
    return min(LONGEST_SECONDS, max(FIRST_SECONDS, SHARE * waiting_seconds))
