"""The next action for a job, decided from its observed state: pure, the whole life of a job on one screen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal

from trimtab_api.steps_of_attempts import MOST_WITHOUT_STEP, restarts_without_step

from trimtab_operator.children.owned import name_conflict
from trimtab_operator.decisions.observed_state import BatchJob, ObservedState
from trimtab_operator.decisions.pods import Problem
from trimtab_operator.decisions.policies.progress import TIMEOUTS, progress_deadline
from trimtab_operator.decisions.policies.restart import (
    LONGEST_WAIT,
    FailJob,
    Restart,
    RestartBackoff,
    after_disruption,
    after_failure,
    after_resize,
    evicted_again,
    is_fault_of_the_job,
    restart_backoff,
    without_a_step,
)
from trimtab_operator.decisions.policies.timers import (
    seconds_to_deadline,
    seconds_to_expiry,
    seconds_to_next_check,
    seconds_to_renewal,
)
from trimtab_operator.decisions.policies.worker_failure import (
    WorkerFailure,
    deleted_by_hand,
    find_root_failure,
    lost_node,
    pending_worker,
    seconds_to_cause,
)
from trimtab_operator.decisions.suspension import wanted_suspension
from trimtab_operator.kube.labels import JOB_NAME
from trimtab_operator.kube.text import parse_time, seconds_to

#: Seconds until a job whose pods are being deleted is reconciled again.
_WHILE_ENDING_SECONDS = 10.0
#: Seconds until an attempt of which it is not known what ended it is looked at again.
_LOOK_AGAIN_SECONDS = 5.0
#: Reason of a job whose ranks get no further.
STALLED = "ProgressDeadlineExceeded"


class Action(Enum):
    """The one change that a decision asks for."""

    NOTHING = "nothing"
    CREATE_BATCH_JOB = "create the Job"
    DELETE_BATCH_JOB = "delete the Job and its pods"
    RENEW_BATCH_JOB = "delete the Job, which makes no pods"
    SUSPEND_BATCH_JOB = "suspend the Job"
    RESUME_BATCH_JOB = "resume the Job"
    LABEL_BATCH_JOB = "give the Job its labels back"
    DELETE_JOB = "delete the TrainingJob"


@dataclass(frozen=True)
class TerminalState:
    """The end of a job."""

    state: Literal["Succeeded", "Failed"]
    reason: str
    message: str


@dataclass(frozen=True)
class Decision:
    """The next action, the status to write, and the time of the next reconciliation.

    The operator writes what has happened to the status before it acts on it: it counts a restart first, and deletes
    the previous attempt's Job once the status says that this attempt is over. An operator that dies in between thus
    leaves no doubt to the next.
    """

    action: Action = Action.NOTHING
    batch_job: BatchJob | None = None
    """The Job to delete, where ``action`` deletes one."""
    awaits_cause: bool = False
    """True if the attempt is over and its cause will be known soon: until then the status stays as it is."""
    terminal_state: TerminalState | None = None
    restart: Restart | None = None
    backoff: RestartBackoff | None = None
    """How soon the attempt after ``restart`` may follow it; set with it."""
    restarts_without_step: int | None = None
    """The last restarts in a row that failed before their first step; None: as before."""
    blocking_reason: str = ""
    """The reason that blocks the job, in words for the user."""
    requeue_after_seconds: float | None = None


def decide(observed: ObservedState) -> Decision:
    """Decide the next action for a job."""
    spec, status, batch_job = observed.job.spec, observed.status, observed.batch_job

    if status.is_final:
        return _after_the_end(observed)

    if batch_job is not None and batch_job.owner_uid != observed.uid:
        return blocked(observed, name_conflict("Job", batch_job.name, batch_job.is_deleting))

    left = seconds_to_deadline(spec.active_deadline_seconds, parse_time(status.start_time), observed.now)
    if left is not None and left <= 0 and not (batch_job is not None and batch_job.is_complete):
        message = f"ran longer than spec.activeDeadlineSeconds ({spec.active_deadline_seconds} s)"
        return Decision(terminal_state=TerminalState("Failed", "DeadlineExceeded", message))

    if batch_job is None:
        obsolete = next((job for job in observed.earlier_batch_jobs if not job.is_deleting), None)
        if obsolete is not None:
            return Decision(Action.DELETE_BATCH_JOB, batch_job=obsolete)
        waiting = min(LONGEST_WAIT, seconds_to(status.last_restart_time, observed.now))  # else by another's wrong clock
        if waiting > 0:
            return Decision(requeue_after_seconds=min(waiting, waiting if left is None else left))
        if observed.stale_pods:  # two attempts must not write to the same files
            if observed.earlier_batch_jobs or all(pod.to_end_by for pod in observed.stale_pods):
                return _while_ending(left)
            return blocked(observed, _earlier_pods_in_the_way(observed), Decision(requeue_after_seconds=left))
        return Decision(Action.CREATE_BATCH_JOB, requeue_after_seconds=left)
    if batch_job.is_deleting:  # which takes for ever where the node of a pod is gone: that is to be told
        return _while_ending(left)
    if batch_job.attempt != status.restarts:
        return Decision(Action.DELETE_BATCH_JOB, batch_job=batch_job)
    if not batch_job.has_its_labels:
        return Decision(Action.LABEL_BATCH_JOB, requeue_after_seconds=left)

    if batch_job.is_complete:
        return Decision(
            terminal_state=TerminalState("Succeeded", "Completed", f"all {spec.workers} workers ended well")
        )
    deleted = None
    if batch_job.is_begun and not batch_job.is_suspended:
        deleted = deleted_by_hand(observed.pods, spec.processes_per_worker, batch_job.started_at)
    if batch_job.failure is not None and deleted is None:
        patience = seconds_to_cause(observed.pods, spec.processes_per_worker, observed.now)
        if patience > 0:
            return Decision(awaits_cause=True, requeue_after_seconds=min(patience, _LOOK_AGAIN_SECONDS))
    loss = _never_complete(observed) or find_root_failure(batch_job.failure, observed.pods, deleted) or _stall(observed)
    if loss is not None:
        num_without_step = _restarts_without_step(loss, observed)
        verdict = _after_loss(loss, observed, num_without_step)
        if isinstance(verdict, FailJob):
            terminal_state = TerminalState("Failed", verdict.reason, verdict.message)
            return Decision(terminal_state=terminal_state, restarts_without_step=num_without_step)
        lasted = _seconds_since(observed.now, status.start_time, status.last_restart_time)
        return Decision(
            restart=verdict,
            backoff=restart_backoff(status.restarts_in_a_row, lasted),
            restarts_without_step=num_without_step,
            requeue_after_seconds=0.0,
        )

    if batch_job.num_workers not in (0, spec.workers):  # all ranks write a checkpoint as their pods are told to end
        return Decision(
            restart=after_resize(batch_job.num_workers, spec.workers),
            backoff=RestartBackoff(status.restarts_in_a_row, 0.0),
            requeue_after_seconds=0.0,
        )
    suspension = wanted_suspension(
        spec.suspend, batch_job.is_suspended, batch_job.is_suspended_by_us, observed.is_queued
    )
    if suspension is not None:
        return Decision(Action.SUSPEND_BATCH_JOB if suspension else Action.RESUME_BATCH_JOB, requeue_after_seconds=left)
    if observed.is_stuck:
        patience = seconds_to_renewal(observed.missing_pods_seconds)
        if patience <= 0:
            return Decision(Action.RENEW_BATCH_JOB, requeue_after_seconds=left)
        return Decision(requeue_after_seconds=patience if left is None else min(left, patience))
    return Decision(requeue_after_seconds=left)


def _restarts_without_step(loss: WorkerFailure, observed: ObservedState) -> int:
    """Count the last restarts in a row that failed before their first step. A disrupted attempt does not count."""
    status = observed.status
    if observed.has_trained:
        return 0
    if _is_disruption(loss, observed):
        return status.restarts_without_step
    has_no_step = loss.cause.reason == STALLED or any(pod.has_no_step for pod in observed.pods)
    return restarts_without_step(status.restarts_without_step, status.restarts, has_stepped=not has_no_step)


def _is_disruption(loss: WorkerFailure, observed: ObservedState) -> bool:
    return loss.is_disruption and not is_fault_of_the_job(
        loss.is_memory_eviction, observed.status.memory_evictions_in_a_row
    )


def _after_loss(loss: WorkerFailure, observed: ObservedState, num_without_step: int) -> Restart | FailJob:
    """Decide between restart and failure after the loss of a worker and a number of restarts without a step.

    Disrupted (drained, preempted, evicted, its node gone): all ranks restart, whatever the policy; it counts toward
    maxDisruptions alone. Evicted for want of memory again and again, or failed: it counts toward maxRestarts.
    """
    spec, status = observed.job.spec, observed.status
    if _is_disruption(loss, observed):
        return after_disruption(loss.cause, loss.is_memory_eviction, status.disruptions, spec.max_disruptions)
    cause = evicted_again(loss.cause) if loss.is_disruption else loss.cause
    counted = status.restarts - status.disruptions
    verdict = after_failure(cause, spec.restart_policy, counted, spec.max_restarts, loss.is_memory_eviction)
    if isinstance(verdict, Restart) and num_without_step >= MOST_WITHOUT_STEP:
        return without_a_step(cause, status.restarts, num_without_step)
    return verdict


def _never_complete(observed: ObservedState) -> WorkerFailure | None:
    """Return the worker whose absence made the attempt fail before all were ready; None if there is none."""
    batch_job, spec = observed.batch_job, observed.job.spec
    if batch_job is None or batch_job.failure is None or observed.has_trained:
        return None
    if observed.status.workers.ready >= spec.workers:
        return None
    return pending_worker(observed.pods, spec.processes_per_worker)


def _stall(observed: ObservedState) -> WorkerFailure | None:
    """Return the failure of an attempt without progress, with the missing worker if rank 0 or the pods name it."""
    spec, progress = observed.job.spec, observed.progress
    deadline = progress_deadline(spec.progress_deadline_seconds, spec.communication.timeout, progress.has_trained)
    if (
        observed.rank0_status is None or observed.rank0_status.is_final
    ):  # nothing is known, or the last step was the last
        return None
    if deadline is None or progress.seconds_without_progress < deadline:
        return None
    by = "spec.progressDeadlineSeconds"
    if spec.progress_deadline_seconds is None:
        by = f"{TIMEOUTS} times spec.communication.timeout; {by} sets another"
    last = f"no new step after step {observed.rank0_status.step}" if progress.has_trained else "no first step"
    unready = sorted(pod.worker for pod in observed.pods if pod.is_unready)
    missing = f"worker {unready[0]} is not ready" if unready else ""
    said = f"rank 0 last said: {observed.rank0_status.message}" if observed.rank0_status.message else ""
    message = "; ".join(filter(None, (f"{last} for {deadline:g} s ({by})", missing, said)))
    return lost_node(observed.pods) or WorkerFailure(Problem(STALLED, message), is_disruption=False)


def _while_ending(left: float | None) -> Decision:
    """Wait for pods to end; reconcile again, since no watch reports a lost node."""
    return Decision(requeue_after_seconds=_WHILE_ENDING_SECONDS if left is None else min(left, _WHILE_ENDING_SECONDS))


def blocked(observed: ObservedState, blocking_reason: str, wanted: Decision | None = None) -> Decision:
    """Report the reason that blocks ``wanted``, and reconcile again no later than that decision asks for."""
    ready = observed.status.condition("Ready")
    since = parse_time(ready.last_transition_time) if ready else None
    waiting = (observed.now - since).total_seconds() if since else 0.0
    seconds = seconds_to_next_check(waiting)
    if wanted is not None and wanted.requeue_after_seconds is not None:
        seconds = min(seconds, wanted.requeue_after_seconds)
    return Decision(blocking_reason=blocking_reason, requeue_after_seconds=seconds)


def _earlier_pods_in_the_way(observed: ObservedState) -> str:
    """Return the message for pods of an earlier attempt: two pods of one rank would have one name."""
    workers = ", ".join(str(each) for each in sorted({pod.worker for pod in observed.stale_pods}))
    remedy = f"kubectl delete pods -n {observed.namespace} -l {JOB_NAME}={observed.name}"
    return f"waits for pods of an earlier attempt to end (worker {workers}); if they never do: {remedy}"


def _after_the_end(observed: ObservedState) -> Decision:
    """Decide about a finished job: its pods end if they have not, and in time it is deleted."""
    finished_at = parse_time(observed.status.completion_time)
    left = seconds_to_expiry(observed.job.spec.ttl_seconds_after_finished, finished_at, observed.now)
    if left is not None and left <= 0:
        return Decision(Action.DELETE_JOB)
    for batch_job in (observed.batch_job, *observed.earlier_batch_jobs):
        if batch_job is not None and _is_to_end(batch_job, observed.uid):
            return Decision(Action.DELETE_BATCH_JOB, batch_job=batch_job, requeue_after_seconds=left)
    return Decision(requeue_after_seconds=left)


def _is_to_end(batch_job: BatchJob, uid: str) -> bool:
    """Return whether the Job of a finished TrainingJob, known by its uid, could still run pods."""
    return batch_job.owner_uid == uid and not batch_job.is_finished and not batch_job.is_deleting


def _seconds_since(now: datetime, *moments: str | None) -> float:
    """Return the seconds since the last of some moments; zero if there is none."""
    known = [at for at in map(parse_time, moments) if at is not None]
    return (now - max(known)).total_seconds() if known else 0.0
