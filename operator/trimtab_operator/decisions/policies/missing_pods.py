"""Pods that do not come: when the operator asks for the reason, and when it replaces a Job that is stuck.

A Job may have fewer pods than workers, or a pod may wait for its volumes. Only events give the reason, and reading
them costs a request. A Job that makes no pod at all, and of which no event says why, is stuck and is replaced.
"""

from __future__ import annotations

from trimtab_operator.decisions.policies.blocked import seconds_to_next_check

#: Seconds that pods may take to appear before the operator asks for the reason; also the least time between questions.
PATIENCE_SECONDS = 5.0
#: Seconds that mounting a pod's volumes may take; a kubelet mounts what is there in one or two.
MOUNT_PATIENCE_SECONDS = 10.0

#: Seconds without any pod and without a reason after which a Job is stuck. Kubernetes' Job controller counts expected
#: pods by the Job's name. If its watch is cut while one Job is deleted and another of that name is made, it can wait
#: for pods of the deleted one, and nothing wakes it (docs/decisions/operator.md). Replacing the Job does.
_STUCK_SECONDS = 60.0


def seconds_to_renewal(missing_pods_seconds: float) -> float:
    """Seconds until a Job without any pod is deleted, so that its attempt gets another; zero or less: now."""
    return _STUCK_SECONDS - missing_pods_seconds


def seconds_to_question(
    missing_pods_seconds: float, asked_seconds_ago: float | None, patience_seconds: float = PATIENCE_SECONDS
) -> float:
    """Seconds until the operator asks for the reason, or asks again; zero or less: now.

    * Not asked yet: it asks once pods have been missing for ``patience_seconds``. Normally they have come by then.
    * Asked before: it asks again, at intervals that grow with the time for which pods have been missing.
    """
    if asked_seconds_ago is None:
        return patience_seconds - missing_pods_seconds
    return max(patience_seconds, seconds_to_next_check(missing_pods_seconds)) - asked_seconds_ago
