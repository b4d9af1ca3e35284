"""The worker that was lost first, and why, as the Job and its pods tell it.

A rank that loses another names it. If the other's process died, its pod says so within seconds. If its node died, the
pod says nothing, and Kubernetes needs 40 seconds or more to learn that the node is lost: then it is a disruption.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trimtab_operator.decisions.pods import Pod, Problem
from trimtab_operator.kube.text import parse_time

#: A process that a signal ended has the exit code 128 + the signal's number.
_SIGNALLED = 128
#: Exit code of a worker that was told to end.
_TOLD_TO_END = _SIGNALLED + signal.SIGTERM


@dataclass(frozen=True)
class WorkerFailure:
    """The loss of a worker, without which the others cannot go on."""

    cause: Problem
    is_disruption: bool
    """True: the cluster took it away, through no fault of the job's."""
    is_memory_eviction: bool = False
    """True: the cluster took it away since its node was short of memory."""


def find_root_failure(job_failure: str | None, pods: Sequence[Pod], deleted: Pod | None = None) -> WorkerFailure | None:
    """Return the worker that was lost first, and the reason; None if none is.

    * A disrupted pod is a loss at once. It is the cause even if others failed too, since they failed for want of it. Of
      several disrupted pods, the lowest worker's is the cause.
    * A pod that somebody ``deleted`` while the attempt went on is a loss at once, and a disruption too.
    * Once the Job has failed, a pod that has not ended on a node that is lost is the cause, and a disruption: the
      others failed for want of it, or could not have gone on without it.
    * A failed pod is a loss once the Job has failed. Of several, the one that failed first is the cause; the others'
      failures follow from it. Kubernetes tells the time to the second. Within one second, a pod that was killed for
      memory or by a signal comes before one that ended by itself, because a worker ends by itself when its connection
      to a killed one breaks; after that the lowest worker comes first.
    * If the Job failed and no pod is left to say why, the cause is the Job's own message.
    """
    for pod in sorted(pods, key=lambda pod: pod.worker):
        if pod.disruption is not None and pod.phase != "Succeeded":
            return WorkerFailure(pod.disruption, is_disruption=True, is_memory_eviction=pod.is_memory_eviction)
    if deleted is not None:
        message = f"the pod of worker {deleted.worker} was deleted before it ended, by whom is unknown"
        return WorkerFailure(Problem("PodDeleted", message), is_disruption=True)
    if job_failure is None:
        return None
    on_lost_node = lost_node(pods)
    if on_lost_node is not None:
        return on_lost_node
    failed = [pod for pod in pods if pod.failure is not None]
    if not failed:
        return WorkerFailure(Problem("JobFailed", job_failure), is_disruption=False)
    first = min(failed, key=lambda pod: (not pod.failed_at, pod.failed_at, _violence(pod), pod.worker))
    assert first.failure is not None
    return WorkerFailure(first.failure, is_disruption=False)


def deleted_by_hand(pods: Sequence[Pod], processes_per_worker: int, started_at: str) -> Pod | None:
    """Return the pod of a running Job that somebody deleted while all others went on; None if none was.

    The Job controller deletes pods only once one has failed, and that is seen before, or where the Job is suspended:
    such pods were deleted before the Job started again, at ``started_at``. If pods have failed since the deletion, all
    of them must say that they lost the worker that was deleted, and none must have failed earlier. Their times alone
    prove nothing, since they are of the clocks of nodes. A pod that was deleted in the second of a failure proves
    nothing before it has ended: the Job controller may have deleted it, on a node that is about to be found lost.
    """
    deleted = [
        pod
        for pod in pods
        if pod.deleted_at > started_at and pod.phase != "Succeeded" and pod.exit_code in (0, _TOLD_TO_END)
    ]
    if not deleted:
        return None
    first = min(deleted, key=lambda pod: (pod.deleted_at, pod.worker))
    failed = [pod for pod in pods if pod.failure is not None and pod not in deleted]
    followed = (
        (first.deleted_at < pod.failed_at or (first.deleted_at == pod.failed_at and first.has_ended))
        and first.worker in lost_workers(pod, processes_per_worker)
        for pod in failed
    )
    return first if all(followed) else None


def pending_worker(pods: Sequence[Pod], processes_per_worker: int) -> WorkerFailure | None:
    """Return a worker that had not started when the others gave up waiting for it; None if none says so.

    It is for an attempt that never had all its workers. The Job controller deletes a pod that is pending when another
    has failed, so a worker that has no pod any more had not started either.
    """
    have_run = {pod.worker for pod in pods if pod.phase != "Pending"}
    failed = [pod for pod in pods if pod.failure is not None]
    missing = {worker for pod in failed for worker in lost_workers(pod, processes_per_worker)} - have_run
    if not missing:
        return None
    first = min(missing)
    message = f"worker {first} had not started when the others had waited for it for spec.communication.timeout"
    return WorkerFailure(Problem("WorkerPending", message), is_disruption=True)


def lost_node(pods: Sequence[Pod]) -> WorkerFailure | None:
    """Return the lowest worker that has not ended on a node that is lost; None if there is none."""
    lost = [pod for pod in pods if pod.node_is_lost and not pod.has_ended]
    if not lost:
        return None
    first = min(lost, key=lambda pod: pod.worker)
    message = f"worker {first.worker} was lost with node {first.node}, which is gone or cannot be reached"
    return WorkerFailure(Problem("NodeLost", message), is_disruption=True)


def _violence(pod: Pod) -> int:
    """Return 0 if the worker was killed for memory, 1 if a signal ended it, 2 if it ended by itself.

    SIGTERM counts as 2: the Job controller has it sent to all other workers as soon as one has failed.
    """
    if pod.failure is not None and pod.failure.reason == "OOMKilled":
        return 0
    return 1 if pod.exit_code > _SIGNALLED and pod.exit_code != _TOLD_TO_END else 2


#: Seconds after a failure in which Kubernetes learns that a node is lost (its node-monitor-grace-period is 50 s by
#: default), and in which a pod that failed tells so.
PATIENCE_SECONDS = 60.0
#: How a rank names another that it lost (`trimtab.transport.base.CommunicationError`).
_LOST = re.compile(r"CommunicationError: rank (\d+): ")


def seconds_to_cause(pods: Sequence[Pod], processes_per_worker: int, now: datetime) -> float:
    """Return the seconds for which the cause of a failed attempt may still become known; zero if no more is to come.

    The verdict waits only for a worker that a failed worker names, whose pod has not ended, and whose node is not known
    to be lost.
    """
    if any(pod.disruption is not None or pod.node_is_lost for pod in pods):
        return 0.0
    failed = [pod for pod in pods if pod.failure is not None]
    named = {worker for pod in failed for worker in lost_workers(pod, processes_per_worker)}
    silent = {pod.worker for pod in pods if pod.phase == "Running"}
    if not named & silent:
        return 0.0
    since = [at for at in (parse_time(pod.failed_at) for pod in failed) if at is not None]
    if not since:
        return 0.0
    return max(0.0, PATIENCE_SECONDS - max(0.0, (now - min(since)).total_seconds()))


def lost_workers(failed: Pod, processes_per_worker: int) -> set[int]:
    """Return the workers that a failed one names as lost."""
    words = failed.failure.message if failed.failure is not None else ""
    return {int(rank) // processes_per_worker for rank in _LOST.findall(words)}
