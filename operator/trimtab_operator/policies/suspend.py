"""spec.suspend: no pods run until it is false again, or until a queue decides."""

from __future__ import annotations


def wanted_suspension(asked: bool, is_suspended: bool, is_suspended_by_us: bool, is_queued: bool) -> bool | None:
    """What the Job's `suspend` has to become; None: it stays.

    * In a queue it is the queue's (Kueue): were it set here whenever asked for, the queue would admit the Job, and
      see it suspended again, for ever.
    * Asked for, and the Job runs: it is suspended.
    * No longer asked for: what was suspended for it resumes. What others suspended is theirs to resume.
    """
    if is_queued:
        return None
    if asked and not is_suspended:
        return True
    if is_suspended and is_suspended_by_us and not asked:
        return False
    return None
