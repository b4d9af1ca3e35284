"""The status of a job, from what is known and what was decided: pure. Also whether it is worth writing yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from trimtab_api.trainingjob.status import Condition, ConditionType, NetworkStatus, PlanStatus, State, Status, Workers
from trimtab_api.units import format_bandwidth, format_duration

from trimtab_operator.decide import Action, Decision, parse_time, seconds_to
from trimtab_operator.events import WAITING_FOR_TRAINING
from trimtab_operator.observed_state import ObservedState
from trimtab_operator.pods import Problem
from trimtab_operator.policies.network import is_degraded
from trimtab_operator.trainer_message import TrainerMessage
from trimtab_operator.truncate import truncate

#: Seconds between two writes that bring only new figures: at least so many, and at most one more.
WRITE_SECONDS = 10.0
#: Seconds by which a write may be later than the time it wrote, which is cut to the second.
_CUT_SECONDS = 1.0

#: What is done about a spec that this version cannot read, and by whom.
_UNREADABLE_REMEDY = (
    "the operator cannot read this job and leaves it as it is: "
    "upgrade the operator, or delete the job, mend its file and create it anew"
)

#: Seconds by which a pod must be late in ending before that is told.
_LATE_SECONDS = 30.0
#: Workers that are named in one sentence.
_MOST_NAMED = 4

#: Why no pods run, in a word and in a sentence.
_SUSPENSIONS = {
    "SuspendedByUser": "suspended",
    "WaitingForQueue": "waits for its queue to admit it",
    "SuspendedByOther": "its Job is suspended, by neither spec.suspend nor a queue; who suspended it may lift that",
}

#: A condition as it is told: what, whether (None: not known), why in a word, why in a sentence.
_Told = tuple[ConditionType, bool | None, str, str]


def report(observed: ObservedState, decision: Decision) -> Status:
    """The status as it should be now."""
    before, child = observed.status, observed.own_child
    if before.is_final:
        if decision.action is Action.DELETE_JOB:
            return before
        # What waits for the controller to have seen an edit (kstatus) waits for this alone.
        return before.model_copy(update={"observed_generation": observed.generation})
    workers = Workers()
    if child is not None and child.attempt == before.restarts:
        workers = Workers(active=child.active, ready=child.ready, succeeded=child.succeeded, failed=child.failed)
    restart = decision.restart
    state = _state(observed, decision, workers)
    figures = _figures(before, observed.training)
    after = before.model_copy(
        update={
            "observed_generation": observed.generation,
            "state": state,
            "message": truncate(_message(observed, decision, state, workers)),
            "workers": workers,
            "restarts": before.restarts + (restart is not None),
            "disruptions": before.disruptions + (restart is not None and not restart.counts),
            "last_restart_reason": truncate(restart.cause.message) if restart else before.last_restart_reason,
            "restarts_in_a_row": decision.pace.in_a_row if decision.pace else before.restarts_in_a_row,
            "last_restart_time": _restart_time(observed, decision),
            "start_time": _start_time(observed, decision, state),
            "completion_time": write_time(observed.now) if decision.outcome else None,
            **figures,
        }
    )
    return after.model_copy(update={"conditions": _conditions(observed, decision, after)})


def unreadable(before: Status, mistake: str, generation: int, now: datetime) -> Status:
    """The status of a job whose spec this version cannot read: that is told, and all else stays as it was.

    Whether it is well is not known: its pods may train. What had ended has ended.
    """
    if before.is_final:
        return before.model_copy(update={"observed_generation": generation})
    message = truncate(f"{mistake}; {_UNREADABLE_REMEDY}")
    ready = _condition(before, ("Ready", None, "UnreadableSpec", message), generation, now)
    others = tuple(each for each in before.conditions if each.type != "Ready")
    update = {"observed_generation": generation, "message": message, "conditions": (ready, *others)}
    return before.model_copy(update=update)


def seconds_to_write(before: Status, after: Status, now: datetime, seconds_to_news: float = 0.0) -> float | None:
    """Seconds until the new status may be written, 0 for now; None: there is nothing new.

    A change in the job's life never waits. News of training, which rank 0 can make as often as it likes, waits for
    ``seconds_to_news``. New figures wait until the last write is surely `WRITE_SECONDS` old.
    """
    unstamped = {"last_update_time": None}
    if before.model_copy(update=unstamped) == after.model_copy(update=unstamped):
        return None
    written_at = parse_time(before.last_update_time)
    if _life(before) != _life(after) or written_at is None:
        return 0.0
    elapsed = max(0.0, (now - written_at).total_seconds())  # the clock of whoever wrote it may be ahead
    wait = max(0.0, WRITE_SECONDS + _CUT_SECONDS - elapsed)
    return min(wait, seconds_to_news) if brings_news(before, after) else wait


def brings_news(before: Status, after: Status) -> bool:
    """Whether training has another plan, or its network has degraded or recovered."""
    return _news(before) != _news(after)


def without_figures(before: Status, after: Status) -> Status:
    """The new status with what rank 0 said as it was before: only what is known of the job's life is new."""
    kept = {name: getattr(before, name) for name in ("step", "loss", "step_time", "plan", "network")}
    network = before.condition("NetworkDegraded")
    conditions = tuple(each for each in after.conditions if each.type != "NetworkDegraded")
    return after.model_copy(update={**kept, "conditions": conditions + ((network,) if network else ())})


def write_time(moment: datetime) -> str:
    """A point in time as Kubernetes writes it, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _life(status: Status) -> object:
    """What is written at once when it changes."""
    conditions = {(each.type, each.status, each.reason) for each in status.conditions if each.type != "NetworkDegraded"}
    return status.observed_generation, status.state, status.restarts, conditions


def _news(status: Status) -> object:
    """What is written as soon as rank 0 has not made too much of it."""
    network = status.condition("NetworkDegraded")
    plan = (status.plan.version, status.plan.name) if status.plan else None
    return plan, (network.status, network.reason) if network else None


def _state(observed: ObservedState, decision: Decision, workers: Workers) -> State:
    if decision.outcome is not None:
        return decision.outcome.state
    if _is_suspended(observed):
        return "Suspended"
    if decision.restart is not None:
        return "Restarting"
    if workers.ready == observed.job.spec.workers and observed.has_trained:
        return "Running"
    if observed.status.state == "Running" and workers.active + workers.succeeded == observed.job.spec.workers:
        return "Running"  # trainers have ended, and their pods have yet to
    if observed.status.restarts > 0 and not _is_resumed(observed):
        return "Restarting"
    return "Pending" if decision.obstacle and workers.ready < observed.job.spec.workers else "Starting"


def _message(observed: ObservedState, decision: Decision, state: State, workers: Workers) -> str:
    if decision.outcome is not None:
        return decision.outcome.message
    if decision.obstacle:
        return decision.obstacle
    if decision.restart is not None:
        at = f" at {_restart_time(observed, decision)}" if decision.pace and decision.pace.wait > 0 else ""
        return f"all ranks restart together{at}: {decision.restart.cause.message}"
    if state == "Restarting" and seconds_to(observed.status.last_restart_time, observed.now) > 0:
        return (
            f"all ranks restart together at {observed.status.last_restart_time}: {observed.status.last_restart_reason}"
        )
    num_workers = observed.job.spec.workers
    match state:
        case "Suspended":
            return _SUSPENSIONS[_suspended_by(observed)]
        case "Running":
            unready = _unready(observed)
            workers_train = "1 worker trains" if num_workers == 1 else f"{num_workers} workers train"
            training = unready.message if unready else workers_train
            said = observed.silence or (observed.training.message if observed.training is not None else "")
            return f"{training}; {said}" if said else training
        case _:
            return _what_is_waited_for(observed, state, workers)


def _what_is_waited_for(observed: ObservedState, state: State, workers: Workers) -> str:
    """Of a job that does not train yet: what keeps pods from being ready, else what rank 0 says that it does."""
    num_workers = observed.job.spec.workers
    if workers.ready < num_workers:
        waiting = f"{workers.ready} of {num_workers} workers are ready"
        obstacle = _obstacle(observed, state)
        unready = _unready(observed) if workers.ready else None
        missing = obstacle.message if obstacle else unready.message if unready else _missing(observed, workers)
        return f"{waiting}; {missing}" if missing else waiting
    ready = "1 worker is ready" if num_workers == 1 else f"{num_workers} workers are ready"
    if observed.training is not None:
        return f"{ready}, no step is done yet: {observed.training.message or 'rank 0 does not say why'}"
    if observed.silence:
        return f"{ready}, whether they train is not known: {observed.silence}"
    return f"{ready}, no step is done yet: rank 0 has not reported"


def _missing(observed: ObservedState, workers: Workers) -> str:
    """Who is waited for; empty where that is everybody, or pods and Job do not yet say the same."""
    ready = {pod.worker for pod in observed.pods if pod.is_ready}
    missing = [worker for worker in range(observed.job.spec.workers) if worker not in ready]
    if not ready or len(ready) != workers.ready:
        return ""
    return f"waiting for {_named(missing, [str(each) for each in missing])}"


def _named(workers: Sequence[int], names: Sequence[str]) -> str:
    """Workers by their names, of many the first."""
    others = f" and {len(workers) - _MOST_NAMED} others" if len(workers) > _MOST_NAMED else ""
    return f"worker{'s' if len(workers) > 1 else ''} {', '.join(names[:_MOST_NAMED])}{others}"


def _is_suspended(observed: ObservedState) -> bool:
    """Whether its Job is, or is about to be: of a Job in a queue, the queue says."""
    asked = observed.job.spec.suspend
    if observed.own_child is None:
        return asked
    return observed.own_child.is_suspended or (asked and not observed.is_queued)


def _is_resumed(observed: ObservedState) -> bool:
    """Whether it was suspended after ranks last restarted (or were to) and resumes: then it starts as any other job."""
    suspended = observed.status.condition("Suspended")
    if suspended is None:
        return False
    resumed_at = write_time(observed.now) if suspended.status == "True" else suspended.last_transition_time
    return resumed_at > (observed.status.last_restart_time or "")  # as text sorts as time does


def _suspended_by(observed: ObservedState) -> str:
    if observed.is_queued:
        return "WaitingForQueue"
    return "SuspendedByUser" if observed.job.spec.suspend else "SuspendedByOther"


def _obstacle(observed: ObservedState, state: State) -> Problem | None:
    """What keeps this attempt's workers from starting: first of all that there are no pods for them."""
    child = observed.own_child
    if state in ("Suspended", "Running") or child is None:
        return None
    late = _late(observed)
    if late is not None or child.attempt != observed.status.restarts:
        return late
    if observed.refusal is not None:
        return observed.refusal
    kept = [(pod.worker, pod.obstacle) for pod in observed.pods if pod.obstacle is not None]
    # Of several always the same, whichever pod had news last: a condition that flips would be written at every flip.
    return min(kept, key=lambda each: (each[0], each[1].reason, each[1].message))[1] if kept else None


def _late(observed: ObservedState) -> Problem | None:
    """A pod that should have ended long ago: the next attempt waits for it, for ever if its node is gone."""
    for pod in sorted(observed.pods, key=lambda each: each.worker):
        to_end_by = parse_time(pod.to_end_by)
        if to_end_by is not None and (observed.now - to_end_by).total_seconds() > _LATE_SECONDS:
            where = f"the pod of worker {pod.worker} on node {pod.node}"
            remedy = "if that node is gone, delete the Node, or the pod with --force"
            return Problem("PodDoesNotEnd", f"{where} was deleted and has not ended; {remedy}")
    return None


def _unready(observed: ObservedState) -> Problem | None:
    """Workers that ran and are not ready any more, though no trainer has ended."""
    unready = sorted((pod for pod in observed.pods if pod.is_unready), key=lambda each: each.worker)
    if not unready:
        return None
    names = [f"{pod.worker} (on {pod.node})" if pod.node else str(pod.worker) for pod in unready]
    which = f"{_named([pod.worker for pod in unready], names)} {'is' if len(unready) == 1 else 'are'}"
    return Problem("WorkersNotReady", f"{which} not ready: a node may be away, or a readiness probe fails")


def _restart_time(observed: ObservedState, decision: Decision) -> str | None:
    """When ranks restarted last; still to come where they wait."""
    if decision.pace is None:
        return observed.status.last_restart_time
    return write_time(observed.now + timedelta(seconds=decision.pace.wait))


def _start_time(observed: ObservedState, decision: Decision, state: State) -> str | None:
    """When pods were first asked for; anew after a suspension, as a Job's own startTime."""
    if state == "Suspended":
        return None
    if observed.status.start_time is None and (
        observed.own_child is not None or decision.action is Action.CREATE_CHILD
    ):
        return write_time(observed.now)
    return observed.status.start_time


def _figures(before: Status, training: TrainerMessage | None) -> dict[str, object]:
    """What rank 0 says of training; nothing new if it says nothing."""
    if training is None:
        return {}
    figures: dict[str, object] = {}
    if training.loss is not None or training.loss_is_lost:
        figures["loss"] = None if training.loss is None else float(f"{training.loss:.6g}")
    if training.step is not None:
        figures["step"] = training.step
    if training.step_seconds is not None:
        figures["step_time"] = format_duration(training.step_seconds)
    if training.plan is not None:
        plan = training.plan
        figures["plan"] = PlanStatus(
            version=plan.version,
            name=plan.name,
            ratio=f"{plan.ratio:.4g}",
            collective=plan.collective,
            reason=plan.reason,
            adopted_at_step=plan.adopted_at_step,
        )
    if training.network is not None:
        network = training.network
        bandwidth = round(network.bandwidth)
        best = before.network.best_bandwidth_bytes_per_second if before.network else 0
        figures["network"] = NetworkStatus(
            latency=format_duration(network.latency),
            bandwidth=format_bandwidth(network.bandwidth),
            bandwidth_bytes_per_second=bandwidth,
            best_bandwidth_bytes_per_second=max(best, bandwidth),
            stale=network.stale,
        )
    return figures


def _conditions(observed: ObservedState, decision: Decision, after: Status) -> tuple[Condition, ...]:
    state, message, outcome = after.state, after.message, decision.outcome
    started = observed.status.condition("Started")
    obstacle = None if decision.restart else _obstacle(observed, state)
    unready = "Blocked" if decision.obstacle else obstacle.reason if obstacle and not outcome else state
    lost = _unready(observed) if state == "Running" else None
    all_ready = after.workers.ready == observed.job.spec.workers
    is_well: bool | None = state == "Running" and lost is None
    if all_ready and unready in ("Starting", "Restarting") and decision.restart is None:
        unheard = observed.training is None and bool(observed.silence)
        is_well, unready = (None, "Rank0Silent") if unheard else (False, WAITING_FOR_TRAINING)
    told: list[_Told] = [("Ready", is_well, lost.reason if lost else unready, message)]
    if state == "Running" or all_ready or (started is not None and started.status == "True" and state != "Suspended"):
        told.append(("Started", True, "WorkersReady", "every worker has been ready"))
    else:
        why = "Suspended" if state == "Suspended" else "WaitingForWorkers"
        why = "Blocked" if decision.obstacle else obstacle.reason if obstacle else why
        told.append(("Started", False, why, message))
    if state == "Suspended" or observed.status.condition("Suspended") is not None:
        suspended = state == "Suspended"
        told.append(("Suspended", suspended, _suspended_by(observed) if suspended else "Resumed", message))
    if after.network is not None:
        told.append(_network_condition(observed, after.network))
    for kind in ("Succeeded", "Failed"):
        is_so = outcome is not None and state == kind
        told.append((kind, is_so, outcome.reason if outcome and is_so else state, message))
    return tuple(_condition(observed.status, each, observed.generation, observed.now) for each in told)


def _network_condition(observed: ObservedState, network: NetworkStatus) -> _Told:
    before = observed.status.condition("NetworkDegraded")
    was = before is not None and before.status == "True"
    best = network.best_bandwidth_bytes_per_second
    degraded = is_degraded(was, network.bandwidth_bytes_per_second, best)
    message = f"the slowest link carries {network.bandwidth}, the best it carried is {format_bandwidth(best)}"
    return "NetworkDegraded", degraded, "BandwidthLow" if degraded else "BandwidthGood", message


def _condition(before: Status, told: _Told, generation: int, now: datetime) -> Condition:
    """The condition, with the time of its last change."""
    kind, holds, reason, message = told
    status: Literal["True", "False", "Unknown"] = "Unknown" if holds is None else "True" if holds else "False"
    old = before.condition(kind)
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=truncate(message),
        last_transition_time=old.last_transition_time if old and old.status == status else write_time(now),
        observed_generation=generation,
    )
