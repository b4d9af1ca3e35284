"""Points in time as Kubernetes writes them: text in UTC, to the second."""

from __future__ import annotations

from datetime import datetime


def write_time(moment: datetime) -> str:
    """The text of a point in time, cut to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> datetime | None:
    """The point in time that a text gives; None for none."""
    return datetime.fromisoformat(text) if text else None


def seconds_to(moment: str | None, now: datetime) -> float:
    """Seconds until a point in time; 0 if it has passed, or there is none."""
    at = parse_time(moment)
    return 0.0 if at is None else max(0.0, (at - now).total_seconds())
