"""The rule for restarts that fail before their first step, shared by the local launcher and the operator.

A worker's last words, its container's termination message, say whether its ranks took a step.
"""

from __future__ import annotations

#: Restarts in a row that fail before their first step, after which the next would fail as well.
MOST_WITHOUT_STEP = 2
#: Within the first line of the last words, where a rank that was started has failed.
BEFORE_FIRST_STEP = " before its first step"
#: Prefix of the last words if no rank was started.
NOTHING_STARTED = "nothing was started: "


def restarts_without_step(before: int, num_restarts: int, *, has_stepped: bool) -> int:
    """Count the last restarts in a row that failed before their first step, the attempt that has just failed included.

    Args:
        before: The same before that attempt failed.
        num_restarts: So far; the very first attempt is no restart.
        has_stepped: Whether that attempt took a step, or may have.
    """
    return 0 if has_stepped else before + (num_restarts > 0)


def no_restart_reason(num_restarts: int, num_without_step: int) -> str:
    """Return why a job is not restarted again."""
    return (
        f"after {num_restarts} restarts, the last {num_without_step} of which failed before their first step, as the"
        " next one would"
    )


def failed_before_first_step(message: str) -> bool:
    """Return whether a termination message says that the worker's ranks failed before their first step."""
    first = message.split("\n", 1)[0]
    return first.startswith(NOTHING_STARTED) or BEFORE_FIRST_STEP in first.split("; it last said", 1)[0]
