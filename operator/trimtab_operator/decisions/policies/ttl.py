"""spec.ttlSecondsAfterFinished: how long a finished job is kept."""

from __future__ import annotations

from datetime import datetime


def seconds_to_expiry(
    ttl_seconds_after_finished: int | None, finished_at: datetime | None, now: datetime
) -> float | None:
    """Seconds until a finished job is to be deleted, zero or less if it is; None: it is kept, or has not finished."""
    if ttl_seconds_after_finished is None or finished_at is None:
        return None
    return ttl_seconds_after_finished - (now - finished_at).total_seconds()
