"""spec.progressDeadlineSeconds: how long training may get no further before all ranks restart, which counts.

What is not known holds nothing against a job: the time is that between words of rank 0's, so a rank 0 that cannot be
heard has not stalled, nor does an operator that was away find a job stalled when it is back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from trimtab_operator.trainer_message import TrainerMessage

#: Where nothing is written: so many times spec.communication.timeout. Ranks that wait for each other give up by
#: themselves when that is over, and say more of it.
TIMEOUTS = 2


@dataclass(frozen=True)
class Progress:
    """How far an attempt has got, by all that its rank 0 has said."""

    has_trained: bool = False
    """Whether it has ever said that steps are done."""
    stalled_seconds: float = 0.0
    """From the last new step that it told, or its first word, to its last word."""

    def heard(self, last: TrainerMessage | None, now: TrainerMessage, seconds: float) -> Self:
        """After another word of rank 0's, so many seconds after its last one, if there was one."""
        has_trained = self.has_trained or now.state == "Running"
        is_further = now.step is not None and (last is None or last.step is None or now.step > last.step)
        stalled = 0.0 if last is None or is_further else self.stalled_seconds + seconds
        return replace(self, has_trained=has_trained, stalled_seconds=stalled)


def progress_deadline(progress_deadline_seconds: int | None, timeout: float, has_trained: bool) -> float | None:
    """Seconds without a new step after which an attempt has stalled; None: it may take what it takes.

    * Written: that long, from rank 0's first word on.
    * Left out: `TIMEOUTS` times ``timeout``, and only once steps have been done. Before, ranks that do not find each
      other end by themselves; and a command that never attaches never trains, and is left alone.
    """
    if progress_deadline_seconds is not None:
        return float(progress_deadline_seconds)
    return TIMEOUTS * timeout if has_trained else None
