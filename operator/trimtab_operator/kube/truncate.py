"""Making messages safe to store in objects of the API and to print on a terminal."""

from __future__ import annotations

#: Longest message of a status, of a condition or of an event, in characters.
LONGEST_MESSAGE = 1024
_OMISSION = " … "


def printable(message: str) -> str:
    """The message with control characters replaced (they could move a terminal's cursor); line breaks stay."""
    return "".join(each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in message)


def on_one_line(message: str) -> str:
    """The message, printable and without line breaks."""
    return printable(" ".join(message.split()))


def truncate(message: str, longest: int = LONGEST_MESSAGE) -> str:
    """The message in at most ``longest`` characters.

    The middle is left out: a message begins with who is concerned and ends with what to do.
    """
    if len(message) <= longest:
        return message
    kept = longest - len(_OMISSION)
    tail = kept // 2
    return message[: kept - tail] + _OMISSION + message[len(message) - tail :]
