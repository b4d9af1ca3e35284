"""The status of a job, built from the observed state and the decision. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from trimtab_api.trainingjob.status import CheckpointStatus, NetworkStatus, PlanStatus, State, Status, Workers
from trimtab_api.units import format_bandwidth, format_duration

from trimtab_operator.decisions.decide import Action, Decision
from trimtab_operator.decisions.observed_state import ObservedState
from trimtab_operator.decisions.policies.restart import Restart
from trimtab_operator.decisions.suspension import is_resumed, is_suspended
from trimtab_operator.kube.text import parse_time, truncate, write_time
from trimtab_operator.rank0.sanitize import Checkpoint, Rank0Status
from trimtab_operator.status.conditions import best_of_late, condition, conditions_of
from trimtab_operator.status.message import message_of, restart_time

#: Remedy for a spec that this version of the operator cannot read.
_UNREADABLE_REMEDY = (
    "the operator cannot read this job and leaves it as it is: "
    "upgrade the operator, or delete the job, mend its file and create it anew"
)


def report(observed: ObservedState, decision: Decision) -> Status:
    """Return the status as it should be now."""
    before, batch_job = observed.status, observed.owned_job
    if before.is_final:
        if decision.action is Action.DELETE_JOB:
            return before
        # Tools that wait until the controller has seen an edit (kstatus) read this field alone.
        return before.model_copy(update={"observed_generation": observed.generation})
    workers = Workers()
    if batch_job is not None and batch_job.attempt == before.restarts:
        workers = Workers(
            active=batch_job.active, ready=batch_job.ready, succeeded=batch_job.succeeded, failed=batch_job.failed
        )
    restart = decision.restart
    state = _state(observed, decision, workers)
    figures = _training_fields(before, observed.rank0_status, observed.now)
    after = before.model_copy(
        update={
            "observed_generation": observed.generation,
            "state": state,
            "message": truncate(message_of(observed, decision, state, workers)),
            "workers": workers,
            "restarts": before.restarts + (restart is not None),
            "disruptions": before.disruptions + (restart is not None and not restart.counts_toward_max_restarts),
            "last_restart_reason": truncate(restart.cause.message) if restart else before.last_restart_reason,
            "memory_evictions_in_a_row": _memory_evictions(before, restart),
            "restarts_in_a_row": decision.backoff.in_a_row if decision.backoff else before.restarts_in_a_row,
            "restarts_without_step": (
                before.restarts_without_step
                if decision.restarts_without_step is None
                else decision.restarts_without_step
            ),
            "last_restart_time": restart_time(observed, decision),
            "start_time": _start_time(observed, decision, state),
            "completion_time": write_time(observed.now) if decision.terminal_state else None,
            **figures,
        }
    )
    return after.model_copy(update={"conditions": conditions_of(observed, decision, after)})


def unreadable(before: Status, mistake: str, generation: int, now: datetime) -> Status:
    """Return the status of a job whose spec this version cannot read: a message, with all else kept.

    Ready becomes Unknown, for the job's pods may train. A job that has ended stays as it ended.
    """
    if before.is_final:
        return before.model_copy(update={"observed_generation": generation})
    message = truncate(f"{mistake}; {_UNREADABLE_REMEDY}")
    ready = condition(before, ("Ready", None, "UnreadableSpec", message), generation, now)
    others = tuple(each for each in before.conditions if each.type != "Ready")
    update = {"observed_generation": generation, "message": message, "conditions": (ready, *others)}
    return before.model_copy(update=update)


def _memory_evictions(before: Status, restart: Restart | None) -> int:
    """Count the attempts in a row that were evicted for want of memory, the one before ``restart`` included."""
    if restart is None:
        return before.memory_evictions_in_a_row
    return before.memory_evictions_in_a_row + 1 if restart.is_memory_eviction else 0


def _state(observed: ObservedState, decision: Decision, workers: Workers) -> State:
    """Return the state of the job after this decision."""
    if decision.terminal_state is not None:
        return decision.terminal_state.state
    if is_suspended(observed):
        return "Suspended"
    if decision.restart is not None:
        return "Restarting"
    if workers.ready == observed.job.spec.workers and observed.has_trained:
        return "Running"
    if observed.status.state == "Running" and workers.active + workers.succeeded == observed.job.spec.workers:
        return "Running"  # trainers have ended, and their pods have yet to
    if observed.status.restarts > 0 and not is_resumed(observed):
        return "Restarting"
    return "Pending" if decision.blocking_reason and workers.ready < observed.job.spec.workers else "Starting"


def _start_time(observed: ObservedState, decision: Decision, state: State) -> str | None:
    """Return when pods were first asked for; a resumed job gets a new time, as a Job's own startTime does."""
    if state == "Suspended":
        return None
    if observed.status.start_time is None and (
        observed.owned_job is not None or decision.action is Action.CREATE_BATCH_JOB
    ):
        return write_time(observed.now)
    return observed.status.start_time


def _training_fields(before: Status, rank0_status: Rank0Status | None, now: datetime) -> dict[str, object]:
    """Return rank 0's report of training as fields of the status; empty if there is no report."""
    if rank0_status is None:
        return {}
    figures: dict[str, object] = {}
    if rank0_status.loss is not None or rank0_status.loss_is_lost:
        figures["loss"] = None if rank0_status.loss is None else float(f"{rank0_status.loss:.6g}")
    if rank0_status.step is not None:
        figures["step"] = rank0_status.step
        if rank0_status.step and rank0_status.step != before.step:
            figures["last_progress_time"] = write_time(now)
    if rank0_status.gain is not None:
        figures["gain"] = float(f"{rank0_status.gain:.3g}")
    if rank0_status.step_seconds is not None:
        figures["step_time"] = format_duration(rank0_status.step_seconds)
    if rank0_status.plan is not None:
        plan = rank0_status.plan
        figures["plan"] = PlanStatus(
            version=plan.version,
            name=plan.name,
            ratio=f"{plan.ratio:.4g}",
            collective=plan.collective,
            reason=plan.reason,
            adopted_at_step=plan.adopted_at_step,
        )
    if rank0_status.network is not None:
        network = rank0_status.network
        bandwidth = round(network.bandwidth)
        best = before.network.best_bandwidth_bytes_per_second if before.network else 0
        written_at = parse_time(before.last_update_time)
        since_written = (now - written_at).total_seconds() if written_at else 0.0
        figures["network"] = NetworkStatus(
            latency=format_duration(network.latency),
            bandwidth=format_bandwidth(network.bandwidth),
            bandwidth_bytes_per_second=bandwidth,
            best_bandwidth_bytes_per_second=round(best_of_late(best, bandwidth, since_written)),
            stale=network.stale,
        )
    if rank0_status.checkpoint is not None:
        figures["checkpoint"] = _checkpoint(before.checkpoint, rank0_status.checkpoint, now)
    return figures


def _checkpoint(before: CheckpointStatus | None, told: Checkpoint, now: datetime) -> CheckpointStatus:
    """Return the last checkpoint; the time of one that is known stays, though its age is that of an older message."""
    found = CheckpointStatus(
        step=told.step,
        time=write_time(now - timedelta(seconds=told.age)),
        bytes=told.num_bytes,
        seconds=float(f"{told.seconds:.3g}"),
    )
    if before is not None and before == found.model_copy(update={"time": before.time}):
        return before
    return found
