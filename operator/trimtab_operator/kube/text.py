"""Text in objects of the API: points in time in UTC to the second, and messages that are safe to print."""

from __future__ import annotations

from datetime import datetime


def write_time(moment: datetime) -> str:
    """Format a point in time, cut to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> datetime | None:
    """Parse a point in time; None for none."""
    return datetime.fromisoformat(text) if text else None


def seconds_to(moment: str | None, now: datetime) -> float:
    """Return the seconds until a point in time; 0 if it has passed, or there is none."""
    at = parse_time(moment)
    return 0.0 if at is None else max(0.0, (at - now).total_seconds())


#: Longest message of a status, of a condition or of an event, in characters.
LONGEST_MESSAGE = 1024
_OMISSION = " … "


def printable(message: str) -> str:
    """Replace control characters, which could move a terminal's cursor; line breaks stay."""
    return "".join(
        character if character.isprintable() or character == "\n" else "\N{REPLACEMENT CHARACTER}"
        for character in message
    )


def on_one_line(message: str) -> str:
    """Return the message, printable and without line breaks."""
    return printable(" ".join(message.split()))


def truncate(message: str, longest: int = LONGEST_MESSAGE) -> str:
    """Shorten a message to at most ``longest`` characters.

    The middle is left out: a message begins with who is concerned and ends with what to do.
    """
    if len(message) <= longest:
        return message
    kept = longest - len(_OMISSION)
    tail = kept // 2
    return message[: kept - tail] + _OMISSION + message[len(message) - tail :]
