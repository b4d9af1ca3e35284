"""What is told, at a length that objects of the API can bear."""

from __future__ import annotations

#: Longest message of a status, of a condition or of an event, in characters.
LONGEST_MESSAGE = 1024
_LEFT_OUT = " … "


def shorten(message: str, longest: int = LONGEST_MESSAGE) -> str:
    """The message; of one that is too long, the middle is left out: it begins with who, and ends with what to do."""
    if len(message) <= longest:
        return message
    kept = longest - len(_LEFT_OUT)
    tail = kept // 2
    return message[: kept - tail] + _LEFT_OUT + message[len(message) - tail :]
