"""A Job that has fewer pods than workers: how soon it is asked why. Only an event on the Job says, and asking costs."""

from __future__ import annotations

from trimtab_operator.policies.blocked import seconds_to_next_look

#: Seconds that pods may be on their way before anybody asks what became of them, and between two questions at least.
PATIENCE_SECONDS = 5.0


def seconds_to_question(lacking_seconds: float, asked_seconds_ago: float | None) -> float:
    """Seconds until it is asked, or asked again; zero or less: now.

    * Lacking for less than `PATIENCE_SECONDS`: not yet. In the normal course all pods are there by then.
    * Asked before: again, the more seldom the longer it has gone on.
    """
    if asked_seconds_ago is None:
        return PATIENCE_SECONDS - lacking_seconds
    return max(PATIENCE_SECONDS, seconds_to_next_look(lacking_seconds)) - asked_seconds_ago
