"""spec.activeDeadlineSeconds: how long a job may run, restarts included; when it resumes, the time begins anew.

Kubernetes' own Jobs do the same: neither the time spent suspended nor the time before it counts.
"""

from __future__ import annotations

from datetime import datetime


def seconds_to_deadline(
    active_deadline_seconds: int | None, started_at: datetime | None, now: datetime
) -> float | None:
    """Seconds until the job has run too long, zero or less if it has; None: no deadline, or not running.

    ``started_at`` is when its pods were first asked for, or asked for again after a suspension.
    """
    if active_deadline_seconds is None or started_at is None:
        return None
    return active_deadline_seconds - max(0.0, (now - started_at).total_seconds())  # another's clock may be ahead
