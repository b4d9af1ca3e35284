"""A Job that has fewer pods than workers, a pod that waits for its volumes: how soon it is asked why.

Only an event says, and asking costs. And a Job that has no pod at all, and nobody says why, is in time made anew.
"""

from __future__ import annotations

from trimtab_operator.policies.blocked import seconds_to_next_look

#: Seconds that pods may be on their way before anybody asks what became of them, and between two questions at least.
PATIENCE_SECONDS = 5.0
#: Seconds that a pod may take over its volumes: kubelets mount what is there in one or two.
MOUNT_PATIENCE_SECONDS = 10.0

#: Seconds that a Job may have no pod, and nobody say why. Kubernetes' Job controller counts the pods that are on their
#: way by the Job's name. Where its watch was cut while one Job was deleted and the next of that name made, it can wait
#: for pods of the first, and nothing wakes it (docs/decisions/operator.md). A Job made anew does.
_FORSAKEN_SECONDS = 60.0


def seconds_to_renewal(lacking_seconds: float) -> float:
    """Seconds until a Job without any pod is deleted, so that its attempt gets another; zero or less: now."""
    return _FORSAKEN_SECONDS - lacking_seconds


def seconds_to_question(
    lacking_seconds: float, asked_seconds_ago: float | None, patience_seconds: float = PATIENCE_SECONDS
) -> float:
    """Seconds until it is asked, or asked again; zero or less: now.

    * Lacking for less than ``patience_seconds``: not yet. In the normal course nothing is lacking by then.
    * Asked before: again, the more seldom the longer it has gone on.
    """
    if asked_seconds_ago is None:
        return patience_seconds - lacking_seconds
    return max(patience_seconds, seconds_to_next_look(lacking_seconds)) - asked_seconds_ago
