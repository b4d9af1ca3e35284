"""The message of a status, which users read first under ``kubectl get``."""

from __future__ import annotations

from datetime import timedelta

from trimtab_api.trainingjob.status import State, Workers

from trimtab_operator.decisions.decide import Decision
from trimtab_operator.decisions.observed_state import ObservedState
from trimtab_operator.decisions.suspension import suspension_message
from trimtab_operator.decisions.worker_problems import find_blocking_reason, missing_workers, unready_workers
from trimtab_operator.kube.text import seconds_to, write_time


def message_of(observed: ObservedState, decision: Decision, state: State, workers: Workers) -> str:
    """Return the message of a job's status in this state."""
    if decision.terminal_state is not None:
        return decision.terminal_state.message
    if decision.blocking_reason:
        return decision.blocking_reason
    if decision.restart is not None:
        at = f" at {restart_time(observed, decision)}" if decision.backoff and decision.backoff.wait > 0 else ""
        return f"all ranks restart together{at}: {decision.restart.cause.message}"
    if state == "Restarting" and seconds_to(observed.status.last_restart_time, observed.now) > 0:
        return (
            f"all ranks restart together at {observed.status.last_restart_time}: {observed.status.last_restart_reason}"
        )
    num_workers = observed.job.spec.workers
    match state:
        case "Suspended":
            return suspension_message(observed)
        case "Running":
            unready = unready_workers(observed)
            workers_train = "1 worker trains" if num_workers == 1 else f"{num_workers} workers train"
            workers_now = unready.message if unready else workers_train
            said = observed.unreachable_reason or (
                observed.rank0_status.message if observed.rank0_status is not None else ""
            )
            return f"{workers_now}; {said}" if said else workers_now
        case _:
            return _before_training(observed, state, workers)


def _before_training(observed: ObservedState, state: State, workers: Workers) -> str:
    """Return the reason why pods are not ready, or else what rank 0 of a job that does not train yet is doing."""
    num_workers = observed.job.spec.workers
    if workers.ready < num_workers:
        waiting = f"{workers.ready} of {num_workers} workers are ready"
        blocking_reason = find_blocking_reason(observed, state)
        unready = unready_workers(observed) if workers.ready else None
        missing = (
            blocking_reason.message
            if blocking_reason
            else unready.message
            if unready
            else missing_workers(observed, workers)
        )
        return f"{waiting}; {missing}" if missing else waiting
    ready = "1 worker is ready" if num_workers == 1 else f"{num_workers} workers are ready"
    if observed.rank0_status is not None:
        return f"{ready}, no step is done yet: {observed.rank0_status.message or 'rank 0 does not say why'}"
    if observed.unreachable_reason:
        return f"{ready}, whether they train is not known: {observed.unreachable_reason}"
    return f"{ready}, no step is done yet: rank 0 has not reported"


def restart_time(observed: ObservedState, decision: Decision) -> str | None:
    """Return when ranks last restarted, or when they will if the next attempt waits."""
    if decision.backoff is None:
        return observed.status.last_restart_time
    return write_time(observed.now + timedelta(seconds=decision.backoff.wait))
