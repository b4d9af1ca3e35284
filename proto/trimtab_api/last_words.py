"""How a worker's last words, its container's termination message, say that its ranks took no step."""

from __future__ import annotations

#: Within the first line, where a rank that was started has failed.
BEFORE_FIRST_STEP = " before its first step"
#: Begins the message where no rank was started.
NOTHING_STARTED = "nothing was started: "


def tells_of_no_step(message: str) -> bool:
    """Whether a termination message says that the worker's ranks failed before their first step."""
    first = message.split("\n", 1)[0]
    return first.startswith(NOTHING_STARTED) or BEFORE_FIRST_STEP in first.split("; it last said", 1)[0]
