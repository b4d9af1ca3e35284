"""spec.progressDeadlineSeconds: the longest time without progress before all ranks restart; the restart counts.

Only time between two messages of rank 0 counts. So a job whose rank 0 cannot be reached has not stalled, and an
operator that was away finds no job stalled when it is back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from trimtab_operator.rank0.sanitize import Rank0Status

#: The default deadline, in multiples of spec.communication.timeout. Ranks that wait for each other give up after one
#: timeout, and their own message says more than the operator can.
TIMEOUTS = 2


@dataclass(frozen=True)
class Progress:
    """The progress of an attempt, by all messages of its rank 0."""

    has_trained: bool = False
    """True if rank 0 has ever said in this attempt that steps are done."""
    seconds_without_progress: float = 0.0
    """From the message that told the last new step, or the first message, to the last message."""

    def on_message(self, last: Rank0Status | None, now: Rank0Status, seconds: float) -> Self:
        """Return the progress after message ``now``, which came ``seconds`` after message ``last`` if there was one."""
        has_trained = self.has_trained or now.state == "Running"
        is_further = now.step is not None and (last is None or last.step is None or now.step > last.step)
        stalled = 0.0 if last is None or is_further else self.seconds_without_progress + seconds
        return replace(self, has_trained=has_trained, seconds_without_progress=stalled)


def progress_deadline(progress_deadline_seconds: int | None, timeout: float, has_trained: bool) -> float | None:
    """Return the seconds without a new step after which an attempt has stalled; None: there is no limit.

    * The field is set: its value, from rank 0's first message on.
    * The field is left out: `TIMEOUTS` times ``timeout``, once a step has been done. Before the first step, ranks that
      do not find each other end by themselves, and a command that never attaches never trains and is left alone.
    """
    if progress_deadline_seconds is not None:
        return float(progress_deadline_seconds)
    return TIMEOUTS * timeout if has_trained else None
