"""Suspension of a job: by its spec, by a queue, or by others."""

from __future__ import annotations

from trimtab_operator.decisions.observed_state import ObservedState
from trimtab_operator.kube.text import write_time

#: Status message of a suspended job, by the reason of its condition.
_MESSAGES = {
    "SuspendedByUser": "suspended",
    "WaitingForQueue": "waits for its queue to admit it",
    "SuspendedByOther": "its Job is suspended, by neither spec.suspend nor a queue; who suspended it may lift that",
}


def is_suspended(observed: ObservedState) -> bool:
    """Return whether the job's Job is suspended or about to be. A queue decides about a queued Job."""
    asked = observed.job.spec.suspend
    if observed.owned_job is None:
        return asked
    return observed.owned_job.is_suspended or (asked and not observed.is_queued)


def is_resumed(observed: ObservedState) -> bool:
    """Return whether the job has resumed since its last restart: it then starts as a new job does."""
    suspended = observed.status.condition("Suspended")
    if suspended is None:
        return False
    resumed_at = write_time(observed.now) if suspended.status == "True" else suspended.last_transition_time
    return resumed_at > (observed.status.last_restart_time or "")  # as text sorts as time does


def suspension_reason(observed: ObservedState) -> str:
    """Return the reason of condition Suspended: who has suspended the job."""
    if observed.is_queued:
        return "WaitingForQueue"
    return "SuspendedByUser" if observed.job.spec.suspend else "SuspendedByOther"


def suspension_message(observed: ObservedState) -> str:
    """Return the status message of a suspended job."""
    return _MESSAGES[suspension_reason(observed)]


def wanted_suspension(asked: bool, is_suspended: bool, is_suspended_by_us: bool, is_queued: bool) -> bool | None:
    """Return the value that the Job's `suspend` has to get; None: it stays.

    * The Job is in a queue (Kueue): the queue decides. If the operator set the field too, the queue would admit the Job
      and find it suspended again, for ever.
    * spec.suspend is true and the Job runs: the Job is suspended.
    * spec.suspend is false and the operator had suspended the Job: it resumes. A Job that others suspended stays so.
    """
    if is_queued:
        return None
    if asked and not is_suspended:
        return True
    if is_suspended and is_suspended_by_us and not asked:
        return False
    return None
