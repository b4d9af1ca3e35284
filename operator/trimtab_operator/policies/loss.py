"""Success and failure: what the Job and its pods say has become of the workers."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_operator.pods import Pod, Problem

#: An exit code above it is that of a process which a signal ended, by so much.
_SIGNALLED = 128


@dataclass(frozen=True)
class Loss:
    """A worker is gone, and the others cannot go on without it."""

    cause: Problem
    disrupted: bool
    """True: the cluster took it away, through no fault of the job's."""


def find_loss(job_failure: str | None, pods: Sequence[Pod]) -> Loss | None:
    """The worker that was lost first, and why; None while none is.

    * A disrupted pod is a loss at once, and the cause even if others failed after it: they failed for want of it. Of
      several, the lowest worker's.
    * A failed pod is one when the Job has failed, of several the one that failed first: the others' failures follow.
      Within one second, which is all that is known of the time, one that was killed for memory or by a signal comes
      before one that ended by itself, as a worker does whose connection to the killed one breaks; then the lowest.
    * If the Job failed and no pod is left to say why, the Job's own message must do.
    """
    for pod in sorted(pods, key=lambda pod: pod.worker):
        if pod.disruption is not None and pod.phase != "Succeeded":
            return Loss(pod.disruption, disrupted=True)
    if job_failure is None:
        return None
    failed = [pod for pod in pods if pod.failure is not None]
    if not failed:
        return Loss(Problem("JobFailed", job_failure), disrupted=False)
    first = min(failed, key=lambda pod: (not pod.failed_at, pod.failed_at, _violence(pod), pod.worker))
    assert first.failure is not None
    return Loss(first.failure, disrupted=False)


def _violence(pod: Pod) -> int:
    """How little of its end was the worker's own doing: 0 killed for memory, 1 by a signal, 2 not killed.

    SIGTERM does not count: the Job controller has it sent to all others as soon as one has failed.
    """
    if pod.failure is not None and pod.failure.reason == "OOMKilled":
        return 0
    return 1 if pod.exit_code > _SIGNALLED and pod.exit_code != _SIGNALLED + signal.SIGTERM else 2
