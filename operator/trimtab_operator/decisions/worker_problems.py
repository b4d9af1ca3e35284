"""Reasons why workers are not ready: pods that cannot start, do not end, or are no longer ready."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab_api.trainingjob.status import State, Workers

from trimtab_operator.decisions.observed_state import ObservedState
from trimtab_operator.decisions.pods import Problem
from trimtab_operator.kube.text import parse_time

#: Seconds past its deadline after which a pod that has not ended is reported.
_LATE_SECONDS = 30.0
#: Why workers are not ready that were, where their pods do not say it.
_UNKNOWN_CAUSE = "a node may be away, or a readiness probe fails"
#: Most workers that one sentence names.
_MOST_NAMED = 4


def find_blocking_reason(observed: ObservedState, state: State) -> Problem | None:
    """Return the reason that keeps workers from starting, first of all that the Job cannot make pods."""
    batch_job = observed.owned_job
    if state in ("Suspended", "Running"):
        return None
    late = _overdue_pod(observed)
    if late is not None or batch_job is None or batch_job.attempt != observed.status.restarts:
        return late
    if observed.creation_error is not None:
        return observed.creation_error
    blocked = [(pod.worker, pod.blocking_reason) for pod in observed.pods if pod.blocking_reason is not None]
    # Always the same of several, whichever pod changed last: each flip of a condition would be another write.
    return min(blocked, key=lambda problem: (problem[0], problem[1].reason, problem[1].message))[1] if blocked else None


def unready_workers(observed: ObservedState) -> Problem | None:
    """Return the workers that are no longer ready, though none of their trainers has ended."""
    unready = sorted((pod for pod in observed.pods if pod.is_unready), key=lambda pod: pod.worker)
    if not unready:
        return None
    names = [f"{pod.worker} (on {pod.node})" if pod.node else str(pod.worker) for pod in unready]
    which = f"{_worker_list([pod.worker for pod in unready], names)} {'is' if len(unready) == 1 else 'are'}"
    why = next((pod.blocking_reason.message for pod in unready if pod.blocking_reason is not None), _UNKNOWN_CAUSE)
    return Problem("WorkersNotReady", f"{which} not ready: {why}")


def missing_workers(observed: ObservedState, workers: Workers) -> str:
    """Return the workers that are not ready yet, as "waiting for ...".

    The text is empty if no worker is ready, or if pods and Job disagree about their number.
    """
    ready = {pod.worker for pod in observed.pods if pod.is_ready}
    missing = [worker for worker in range(observed.job.spec.workers) if worker not in ready]
    if not ready or len(ready) != workers.ready:
        return ""
    return f"waiting for {_worker_list(missing, [str(worker) for worker in missing])}"


def _overdue_pod(observed: ObservedState) -> Problem | None:
    """Return a pod that should have ended long ago, for which the next attempt waits; None if there is none.

    It does not wait for an earlier attempt's pod whose node is known to be lost.
    """
    for pod in sorted((*observed.pods, *observed.stale_pods), key=lambda pod: pod.worker):
        to_end_by = parse_time(pod.to_end_by)
        if to_end_by is not None and (observed.now - to_end_by).total_seconds() > _LATE_SECONDS:
            where = f"the pod of worker {pod.worker} on node {pod.node}"
            remedy = "if that node is gone, delete the Node, or the pod with --force"
            return Problem("PodDoesNotEnd", f"{where} was deleted and has not ended; {remedy}")
    return None


def _worker_list(workers: Sequence[int], names: Sequence[str]) -> str:
    """Return the workers by their names; of many only the first."""
    others = f" and {len(workers) - _MOST_NAMED} others" if len(workers) > _MOST_NAMED else ""
    return f"worker{'s' if len(workers) > 1 else ''} {', '.join(names[:_MOST_NAMED])}{others}"
