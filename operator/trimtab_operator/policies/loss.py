"""Success and failure: what the Job and its pods say has become of the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_operator.pods import Pod, Problem


@dataclass(frozen=True)
class Loss:
    """A worker is gone, and the others cannot go on without it."""

    cause: Problem
    disrupted: bool
    """True: the cluster took it away, through no fault of the job's."""


def find_loss(job_failure: str | None, pods: Sequence[Pod]) -> Loss | None:
    """The worker that was lost first, and why; None while none is.

    * A disrupted pod is a loss at once, and the cause even if others failed after it: they failed for want of it.
    * A failed pod is one when the Job has failed, of several the one that failed first: the others' failures follow.
    * If the Job failed and no pod is left to say why, the Job's own message must do.
    """
    for pod in pods:
        if pod.disruption is not None and pod.phase != "Succeeded":
            return Loss(pod.disruption, disrupted=True)
    if job_failure is None:
        return None
    failed = [pod for pod in pods if pod.failure is not None]
    if not failed:
        return Loss(Problem("JobFailed", job_failure), disrupted=False)
    first = min(failed, key=lambda pod: (not pod.failed_at, pod.failed_at, pod.worker))
    assert first.failure is not None
    return Loss(first.failure, disrupted=False)
