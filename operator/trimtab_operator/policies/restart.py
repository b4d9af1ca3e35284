"""spec.restartPolicy and spec.maxRestarts: when a worker is lost, all ranks restart together, or the job has failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trimtab_operator.pods import Problem


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
