"""spec.restartPolicy and spec.maxRestarts: when a worker is lost, all ranks restart together, or the job has failed.

Each restart in quick succession waits longer than the one before. A node that is short of memory evicts the next
attempt too, and no count bounds the restarts of a job whose pods the cluster takes away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trimtab_operator.pods import Problem

#: Seconds that the second restart in a row waits, and the longest wait; each further restart waits twice as long.
SHORTEST_WAIT, LONGEST_WAIT = 10.0, 300.0
#: Seconds after which an attempt has gone well: whatever ended it, the next begins at once, and is the first in a row.
WENT_WELL = 600.0


@dataclass(frozen=True)
class Restart:
    """All ranks are to restart together."""

    cause: Problem
    counts: bool
    """Whether maxRestarts counts it."""


@dataclass(frozen=True)
class GiveUp:
    """The job has failed."""

    reason: str
    message: str


def after_loss(
    cause: Problem, disrupted: bool, policy: Literal["Never", "OnFailure"], counted: int, max_restarts: int
) -> Restart | GiveUp:
    """What follows the loss of a worker, when ``counted`` restarts have been counted so far.

    * Disrupted (drained, preempted, evicted, its node gone): restart, whatever the policy, and do not count it.
    * Failed under Never: the job has failed.
    * Failed with restarts left: restart, and count it; with none left: the job has failed.
    """
    if disrupted:
        return Restart(cause, counts=False)
    if policy == "Never":
        return GiveUp(cause.reason, f"{cause.message} (restartPolicy is Never)")
    if counted < max_restarts:
        return Restart(cause, counts=True)
    if max_restarts == 0:
        return GiveUp(cause.reason, f"{cause.message} (maxRestarts is 0)")
    return GiveUp(cause.reason, f"{cause.message} (after {counted} restarts, the most that maxRestarts allows)")


@dataclass(frozen=True)
class Pace:
    """How fast restarts follow each other."""

    in_a_row: int
    """Restarts since an attempt last went well, this one included."""
    wait: float
    """Seconds that the next attempt waits."""


def pace(in_a_row: int, lasted: float) -> Pace:
    """The pace of the next restart, after ``in_a_row`` restarts and an attempt that ``lasted`` so many seconds."""
    if in_a_row == 0 or lasted >= WENT_WELL:
        return Pace(1, 0.0)
    return Pace(in_a_row + 1, min(LONGEST_WAIT, SHORTEST_WAIT * 2.0 ** min(in_a_row - 1, 30)))
