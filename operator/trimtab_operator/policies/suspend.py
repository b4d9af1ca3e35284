"""spec.suspend: no pods run until it is false again."""

from __future__ import annotations


def wanted_suspension(asked: bool, is_suspended: bool, is_queued: bool) -> bool | None:
    """What the Job's `suspend` has to become; None: it stays.

    * Asked for, and the Job runs: it is suspended, whoever else has a say.
    * No longer asked for, and the Job is suspended: it resumes, unless a queue (Kueue) decides when it may.
    """
    if asked and not is_suspended:
        return True
    if is_suspended and not asked and not is_queued:
        return False
    return None
