"""Times of the operator's next action on a job: repeated checks, missing pods, time limits. No watch reports these.

Each function returns seconds from now; zero or less means at once.
"""

from __future__ import annotations

from datetime import datetime
from zlib import crc32

#: Shortest and longest time between two checks, seconds.
FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0
#: Between these bounds the operator waits this share of the time for which the job has been blocked.
RECHECK_SHARE = 0.1


def seconds_to_next_check(waiting_seconds: float) -> float:
    """Return the seconds until the next check of a job that has been blocked for ``waiting_seconds``.

    Most obstacles go at once or stay long.
    """
    return min(LONGEST_SECONDS, max(FIRST_SECONDS, RECHECK_SHARE * waiting_seconds))


#: A Job may have fewer pods than workers, or a pod may wait for its volumes. Only events give the reason, and reading
#: them costs a request.
#: Seconds that pods may take to appear before the operator asks for the reason; also the least time between questions.
PATIENCE_SECONDS = 5.0
#: Seconds that mounting a pod's volumes may take; a kubelet mounts what is there in one or two.
MOUNT_PATIENCE_SECONDS = 10.0

#: Seconds without any pod and without a reason after which a Job is stuck. Kubernetes' Job controller counts expected
#: pods by the Job's name. If its watch is cut while one Job is deleted and another of that name is made, it can wait
#: for pods of the deleted one, and nothing wakes it (docs/adr/0024-operator.md). Replacing the Job does.
_STUCK_SECONDS = 60.0


def seconds_to_renewal(missing_pods_seconds: float) -> float:
    """Return the seconds until a Job without any pod is deleted, so that its attempt gets another."""
    return _STUCK_SECONDS - missing_pods_seconds


def seconds_to_question(
    missing_pods_seconds: float, asked_seconds_ago: float | None, patience_seconds: float = PATIENCE_SECONDS
) -> float:
    """Return the seconds until the operator asks for the reason of missing pods, or asks again.

    * Not asked yet: it asks once pods have been missing for ``patience_seconds``. Normally they have come by then.
    * Asked before: it asks again, at intervals that grow with the time for which pods have been missing.
    """
    if asked_seconds_ago is None:
        return patience_seconds - missing_pods_seconds
    return max(patience_seconds, seconds_to_next_check(missing_pods_seconds)) - asked_seconds_ago


def seconds_to_deadline(
    active_deadline_seconds: int | None, started_at: datetime | None, now: datetime
) -> float | None:
    """Return the seconds until activeDeadlineSeconds is over; None without a deadline, or if the job is not running.

    As for Kubernetes' own Jobs, restarts are included, and neither the time spent suspended nor the time before it
    counts.

    Args:
        active_deadline_seconds: The job's field.
        started_at: When pods were first asked for, or asked for again after a suspension.
        now: The present time.
    """
    if active_deadline_seconds is None or started_at is None:
        return None
    return active_deadline_seconds - max(0.0, (now - started_at).total_seconds())  # another's clock may be ahead


def seconds_to_expiry(
    ttl_seconds_after_finished: int | None, finished_at: datetime | None, now: datetime
) -> float | None:
    """Return the seconds until a finished job is deleted; None if it is kept, or has not finished."""
    if ttl_seconds_after_finished is None or finished_at is None:
        return None
    return ttl_seconds_after_finished - (now - finished_at).total_seconds()


#: How much longer than the shortest wait the longest is, as a share of it.
SPREAD = 0.25


def spread(seconds: float, uid: str) -> float:
    """Return a wait of ``seconds``, or up to `SPREAD` more, evenly spread over many uids.

    The wait of one uid is always the same. Jobs that began together, or an operator that has just begun, thus make no
    burst.
    """
    return seconds * (1.0 + SPREAD * crc32(uid.encode()) / 2**32)
