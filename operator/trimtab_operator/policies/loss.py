"""Which worker was lost first, and why, as the Job and its pods tell it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_operator.pods import Pod, Problem

#: A process that a signal ended has the exit code 128 + the signal's number.
_SIGNALLED = 128


@dataclass(frozen=True)
class Loss:
    """A worker is gone, and the others cannot go on without it."""

    cause: Problem
    disrupted: bool
    """True: the cluster took it away, through no fault of the job's."""
    is_memory_eviction: bool = False
    """True: the cluster took it away since its node was short of memory."""


def find_loss(job_failure: str | None, pods: Sequence[Pod]) -> Loss | None:
    """The worker that was lost first, and why; None while none is.

    * A disrupted pod is a loss at once. It is the cause even if others failed too, since they failed for want of it. Of
      several disrupted pods, the lowest worker's is the cause.
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
            return Loss(pod.disruption, disrupted=True, is_memory_eviction=pod.is_memory_eviction)
    if job_failure is None:
        return None
    on_lost_node = lost_node(pods)
    if on_lost_node is not None:
        return on_lost_node
    failed = [pod for pod in pods if pod.failure is not None]
    if not failed:
        return Loss(Problem("JobFailed", job_failure), disrupted=False)
    first = min(failed, key=lambda pod: (not pod.failed_at, pod.failed_at, _violence(pod), pod.worker))
    assert first.failure is not None
    return Loss(first.failure, disrupted=False)


def lost_node(pods: Sequence[Pod]) -> Loss | None:
    """The lowest worker that has not ended on a node that is lost; None if there is none."""
    lost = [pod for pod in pods if pod.node_is_lost and not pod.has_ended]
    if not lost:
        return None
    first = min(lost, key=lambda pod: pod.worker)
    message = f"worker {first.worker} was lost with node {first.node}, which is gone or cannot be reached"
    return Loss(Problem("NodeLost", message), disrupted=True)


def _violence(pod: Pod) -> int:
    """0: the worker was killed for memory; 1: a signal ended it; 2: it ended by itself.

    SIGTERM counts as 2: the Job controller has it sent to all other workers as soon as one has failed.
    """
    if pod.failure is not None and pod.failure.reason == "OOMKilled":
        return 0
    return 1 if pod.exit_code > _SIGNALLED and pod.exit_code != _SIGNALLED + signal.SIGTERM else 2
