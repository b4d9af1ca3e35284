"""spec.restartPolicy, maxRestarts and maxDisruptions: when a worker is lost, all ranks restart, or the job has failed.

If a restart fails before its first step twice in a row, the next one would fail as well: the job has failed. Each
restart in quick succession waits longer than the one before. A node that is short of memory evicts the next attempt
too. If nothing but memory ends attempt after attempt, the job itself may need more than it asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trimtab_api.steps_of_attempts import no_restart_reason
from trimtab_api.throttling import Backoff

from trimtab_operator.decisions.pods import Problem

#: Seconds that the second restart in a row waits, and the longest wait; each further restart waits twice as long.
SHORTEST_WAIT, LONGEST_WAIT = 10.0, 300.0
_BACKOFF = Backoff(SHORTEST_WAIT, LONGEST_WAIT)
#: Seconds after which an attempt has gone well: whatever ended it, the next begins at once, and is the first in a row.
BACKOFF_RESET_AFTER = 600.0
#: Evictions for want of memory, one attempt after the other, that are nobody's fault; further ones count.
FORGIVEN_MEMORY_EVICTIONS = 3


@dataclass(frozen=True)
class Restart:
    """A restart of all ranks together."""

    cause: Problem
    counts_toward_max_restarts: bool
    """True if maxRestarts counts it."""
    is_memory_eviction: bool = False
    """True if a node that was short of memory caused it."""


@dataclass(frozen=True)
class FailJob:
    """The failure of the job."""

    reason: str
    message: str


def after_failure(
    cause: Problem,
    policy: Literal["Never", "OnFailure"],
    counted: int,
    max_restarts: int,
    is_memory_eviction: bool = False,
) -> Restart | FailJob:
    """Decide between restart and failure of the job after a worker has failed.

    Under restartPolicy Never, the job has failed. With restarts left, all ranks restart, and the restart is counted.

    Args:
        cause: The worker's failure.
        policy: The job's restartPolicy.
        counted: Restarts so far that count toward ``max_restarts``.
        max_restarts: The job's maxRestarts.
        is_memory_eviction: True if a node that was short of memory caused the failure.
    """
    if policy == "Never":
        return FailJob(cause.reason, f"{cause.message} (restartPolicy is Never)")
    if counted < max_restarts:
        return Restart(cause, counts_toward_max_restarts=True, is_memory_eviction=is_memory_eviction)
    if max_restarts == 0:
        return FailJob(cause.reason, f"{cause.message} (maxRestarts is 0)")
    return FailJob(cause.reason, f"{cause.message} (after {counted} restarts, the most that maxRestarts allows)")


def after_disruption(cause: Problem, is_memory_eviction: bool, disruptions: int, most: int) -> Restart | FailJob:
    """Decide after a disruption, which is nobody's fault: a restart that does not count, up to ``most`` of them."""
    if disruptions < most:
        return Restart(cause, counts_toward_max_restarts=False, is_memory_eviction=is_memory_eviction)
    remedy = "the most that spec.maxDisruptions allows"
    return FailJob("TooManyDisruptions", f"{cause.message} (after {disruptions} disruptions, {remedy})")


def after_resize(before: int, now: int) -> Restart:
    """Return the restart that follows a change of ``spec.workers``: the user asked for it."""
    cause = Problem("WorkersChanged", f"spec.workers changed from {before} to {now}")
    return Restart(cause, counts_toward_max_restarts=False)


def is_fault_of_the_job(is_memory_eviction: bool, in_a_row: int) -> bool:
    """Return whether a disruption counts as a failure, after ``in_a_row`` evictions for want of memory."""
    return is_memory_eviction and in_a_row >= FORGIVEN_MEMORY_EVICTIONS


def evicted_again(cause: Problem) -> Problem:
    """Return the cause of an eviction that counts, with its remedy."""
    which = f"more than {FORGIVEN_MEMORY_EVICTIONS} evictions for want of memory in a row, which count as failures"
    return Problem(cause.reason, f"{cause.message}; {which}: raise resources.requests.memory to what a worker uses")


def without_a_step(cause: Problem, num_restarts: int, num_without_step: int) -> FailJob:
    """Return the failure of a job whose restarts never reach a step."""
    return FailJob("RestartsReachNoStep", f"{cause.message} ({no_restart_reason(num_restarts, num_without_step)})")


@dataclass(frozen=True)
class RestartBackoff:
    """The wait of the next restart, which grows with the number of restarts in a row."""

    in_a_row: int
    """Restarts since an attempt last went well, this one included."""
    wait: float
    """Seconds that the next attempt waits."""


def restart_backoff(in_a_row: int, lasted: float) -> RestartBackoff:
    """Return the wait of the next restart, after ``in_a_row`` restarts and an attempt of ``lasted`` seconds."""
    if in_a_row == 0 or lasted >= BACKOFF_RESET_AFTER:
        return RestartBackoff(1, 0.0)
    return RestartBackoff(in_a_row + 1, _BACKOFF.delay(in_a_row - 1))
