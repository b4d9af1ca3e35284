"""What is to be done about a job, from what is known of it: pure, the whole life of a job on one screen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal

from trimtab_operator.children.owned import in_the_way
from trimtab_operator.labels import JOB_NAME
from trimtab_operator.pods import Problem
from trimtab_operator.policies.blocked import seconds_to_next_look
from trimtab_operator.policies.deadline import seconds_to_deadline
from trimtab_operator.policies.lacking_pods import seconds_to_renewal
from trimtab_operator.policies.loss import Loss, find_loss
from trimtab_operator.policies.progress import TIMEOUTS, progress_deadline
from trimtab_operator.policies.restart import LONGEST_WAIT, GiveUp, Pace, Restart, after_loss, pace
from trimtab_operator.policies.suspend import wanted_suspension
from trimtab_operator.policies.ttl import seconds_to_expiry
from trimtab_operator.world import Child, World

#: Seconds between two looks at a job whose pods are to end.
_WHILE_ENDING_SECONDS = 30.0


class Action(Enum):
    """The one change that a decision asks for."""

    NOTHING = "nothing"
    CREATE_CHILD = "create the Job"
    DELETE_CHILD = "delete the Job and its pods"
    RENEW_CHILD = "delete the Job, which makes no pods"
    SUSPEND_CHILD = "suspend the Job"
    RESUME_CHILD = "resume the Job"
    LABEL_CHILD = "give the Job its labels back"
    DELETE_JOB = "delete the TrainingJob"


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    state: Literal["Succeeded", "Failed"]
    reason: str
    message: str


@dataclass(frozen=True)
class Decision:
    """What to do now, what has come to pass, and when to look again.

    What has come to pass is written to the status before anything is done about it: a restart is counted first, and
    the Job of the attempt before is deleted when the status says that its time is over. So an operator that dies in
    between leaves no doubt to the next.
    """

    action: Action = Action.NOTHING
    outcome: Outcome | None = None
    restart: Restart | None = None
    pace: Pace | None = None
    """How soon the attempt after ``restart`` may follow it; set with it."""
    obstacle: str = ""
    """What stands in the way, to be told to the user."""
    seconds_to_look_again: float | None = None


def decide(world: World) -> Decision:
    """What is to be done about this job."""
    spec, status, child = world.job.spec, world.status, world.child

    if status.is_final:
        return _after_the_end(world)

    if child is not None and child.owner_uid != world.uid:
        return blocked(world, in_the_way("Job", world.name, child.is_deleting))

    left = seconds_to_deadline(spec.active_deadline_seconds, parse_time(status.start_time), world.now)
    if left is not None and left <= 0 and not (child is not None and child.is_complete):
        message = f"ran longer than spec.activeDeadlineSeconds ({spec.active_deadline_seconds} s)"
        return Decision(outcome=Outcome("Failed", "DeadlineExceeded", message))

    if child is None:
        waiting = min(LONGEST_WAIT, seconds_to(status.last_restart_time, world.now))  # else by another's wrong clock
        if waiting > 0:
            return Decision(seconds_to_look_again=min(waiting, waiting if left is None else left))
        if world.earlier_pods:
            return blocked(world, _earlier_pods_in_the_way(world), Decision(seconds_to_look_again=left))
        return Decision(Action.CREATE_CHILD, seconds_to_look_again=left)
    if child.is_deleting:  # which takes for ever where the node of a pod is gone: that is to be told
        return Decision(
            seconds_to_look_again=_WHILE_ENDING_SECONDS if left is None else min(left, _WHILE_ENDING_SECONDS)
        )
    if child.attempt != status.restarts:
        return Decision(Action.DELETE_CHILD)
    if not child.has_its_labels:
        return Decision(Action.LABEL_CHILD, seconds_to_look_again=left)

    if child.is_complete:
        return Decision(outcome=Outcome("Succeeded", "Completed", f"all {spec.workers} workers ended well"))
    loss = find_loss(child.failure, world.pods) or _stall(world)
    if loss is not None:
        counted = status.restarts - status.disruptions
        verdict = after_loss(loss.cause, loss.disrupted, spec.restart_policy, counted, spec.max_restarts)
        if isinstance(verdict, GiveUp):
            return Decision(outcome=Outcome("Failed", verdict.reason, verdict.message))
        lasted = _seconds_since(world.now, status.start_time, status.last_restart_time)
        return Decision(restart=verdict, pace=pace(status.restarts_in_a_row, lasted), seconds_to_look_again=0.0)

    suspension = wanted_suspension(spec.suspend, child.is_suspended, child.is_suspended_by_us, world.is_queued)
    if suspension is not None:
        return Decision(Action.SUSPEND_CHILD if suspension else Action.RESUME_CHILD, seconds_to_look_again=left)
    if world.is_forsaken:
        patience = seconds_to_renewal(world.lacking_seconds)
        if patience <= 0:
            return Decision(Action.RENEW_CHILD, seconds_to_look_again=left)
        return Decision(seconds_to_look_again=patience if left is None else min(left, patience))
    return Decision(seconds_to_look_again=left)


def _stall(world: World) -> Loss | None:
    """Ranks that have got no further for too long, and who is missing as far as rank 0 or the pods say."""
    spec, progress = world.job.spec, world.progress
    deadline = progress_deadline(spec.progress_deadline_seconds, spec.communication.timeout, progress.has_trained)
    if world.training is None or world.training.is_final:  # nothing is known, or the last step was the last
        return None
    if deadline is None or progress.stalled_seconds < deadline:
        return None
    by = "spec.progressDeadlineSeconds"
    if spec.progress_deadline_seconds is None:
        by = f"{TIMEOUTS} times spec.communication.timeout; {by} sets another"
    last = f"no new step after step {world.training.step}" if progress.has_trained else "no first step"
    unready = sorted(pod.worker for pod in world.pods if pod.is_unready)
    missing = f"worker {unready[0]} is not ready" if unready else ""
    said = f"rank 0 last said: {world.training.message}" if world.training.message else ""
    message = "; ".join(filter(None, (f"{last} for {deadline:g} s ({by})", missing, said)))
    return Loss(Problem("ProgressDeadlineExceeded", message), disrupted=False)


def blocked(world: World, obstacle: str, wanted: Decision | None = None) -> Decision:
    """Wait for what is in the way of doing what was wanted, and look at the job no later than that asks for."""
    ready = world.status.condition("Ready")
    since = parse_time(ready.last_transition_time) if ready else None
    waiting = (world.now - since).total_seconds() if since else 0.0
    seconds = seconds_to_next_look(waiting)
    if wanted is not None and wanted.seconds_to_look_again is not None:
        seconds = min(seconds, wanted.seconds_to_look_again)
    return Decision(obstacle=obstacle, seconds_to_look_again=seconds)


def _earlier_pods_in_the_way(world: World) -> str:
    """Two pods of one rank would answer to one name."""
    workers = ", ".join(str(each) for each in sorted({pod.worker for pod in world.earlier_pods}))
    remedy = f"kubectl delete pods -n {world.namespace} -l {JOB_NAME}={world.name}"
    return f"waits for pods of an earlier attempt to end (worker {workers}); if they never do: {remedy}"


def _after_the_end(world: World) -> Decision:
    """A finished job: its pods end if they have not, and in time it is deleted."""
    child = world.child
    finished_at = parse_time(world.status.completion_time)
    left = seconds_to_expiry(world.job.spec.ttl_seconds_after_finished, finished_at, world.now)
    if left is not None and left <= 0:
        return Decision(Action.DELETE_JOB)
    if _is_to_end(child, world.uid):
        return Decision(Action.DELETE_CHILD, seconds_to_look_again=left)
    return Decision(seconds_to_look_again=left)


def _is_to_end(child: Child | None, uid: str) -> bool:
    """Whether the Job of a TrainingJob that is over, known by its uid, could still run pods."""
    return child is not None and child.owner_uid == uid and not child.is_finished and not child.is_deleting


def _seconds_since(now: datetime, *moments: str | None) -> float:
    """Seconds since the last of some moments; zero if there is none."""
    known = [at for at in map(parse_time, moments) if at is not None]
    return (now - max(known)).total_seconds() if known else 0.0


def seconds_to(moment: str | None, now: datetime) -> float:
    """Seconds until then; zero if it has been, or never will be."""
    at = parse_time(moment)
    return 0.0 if at is None else max(0.0, (at - now).total_seconds())


def parse_time(text: str | None) -> datetime | None:
    """A point in time as Kubernetes writes it."""
    return datetime.fromisoformat(text) if text else None
