"""spec.suspend: no pods run until it is false again, or until a queue decides."""

from __future__ import annotations


def wanted_suspension(asked: bool, is_suspended: bool, is_suspended_by_us: bool, is_queued: bool) -> bool | None:
    """What the Job's `suspend` has to become; None: it stays.

    * The Job is in a queue (Kueue): the queue decides. If the operator set the field too, the queue would admit the Job
      and find it suspended again, for ever.
    * spec.suspend is true and the Job runs: the Job is suspended.
    * spec.suspend is false and the operator had suspended the Job: it resumes. A Job that others suspended stays so.
    """
    if is_queued:
        return None
    if asked and not is_suspended:
        return True
    if is_suspended and is_suspended_by_us and not asked:
        return False
    return None
