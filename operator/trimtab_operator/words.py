"""What is told, in a form that objects of the API and terminals can bear."""

from __future__ import annotations

#: Longest message of a status, of a condition or of an event, in characters.
LONGEST_MESSAGE = 1024
_LEFT_OUT = " … "


def printable(message: str) -> str:
    """The message without what would move a terminal's cursor or turn its text around; its lines stay."""
    return "".join(each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in message)


def on_one_line(message: str) -> str:
    """The message, printable and without line breaks."""
    return printable(" ".join(message.split()))


def shorten(message: str, longest: int = LONGEST_MESSAGE) -> str:
    """The message; of one that is too long, the middle is left out: it begins with who, and ends with what to do."""
    if len(message) <= longest:
        return message
    kept = longest - len(_LEFT_OUT)
    tail = kept // 2
    return message[: kept - tail] + _LEFT_OUT + message[len(message) - tail :]
