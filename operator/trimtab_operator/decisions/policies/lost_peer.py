"""A worker failed because it lost another, whose pod has yet to tell why: how long the verdict waits for that.

A rank that loses another names it. If the other's process died, its pod says so within seconds. If its node died, the
pod says nothing, and Kubernetes needs 40 seconds or more to learn that the node is lost: then it is a disruption.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from trimtab_operator.decisions.pods import Pod
from trimtab_operator.kube.timestamps import parse_time

#: Seconds after a failure in which Kubernetes learns that a node is lost (its node-monitor-grace-period is 50 s by
#: default), and in which a pod that failed tells so.
PATIENCE_SECONDS = 60.0
#: How a rank names another that it lost (`trimtab.transport.base.CommunicationError`).
_LOST = re.compile(r"CommunicationError: rank (\d+): ")


def seconds_to_cause(pods: Sequence[Pod], processes_per_worker: int, now: datetime) -> float:
    """Seconds for which the cause of a failed attempt may still become known; zero: it is known, or will not be.

    It waits only for a worker that a failed worker names, whose pod has not ended, and whose node is not known to be
    lost.
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
    """The workers that a failed one names as those that it lost."""
    words = failed.failure.message if failed.failure is not None else ""
    return {int(rank) // processes_per_worker for rank in _LOST.findall(words)}
