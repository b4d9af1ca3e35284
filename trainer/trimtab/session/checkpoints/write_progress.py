"""How far the writing of a checkpoint has come, told while it lasts long."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.checkpoint.background import BackgroundWriter
from trimtab.run_files.recorder import Recorder
from trimtab.session.rank_ops import RankOps

#: Seconds between two lines of the run's metrics about one write; a write that takes less has none.
_EVERY_SECONDS = 10.0
#: Seconds of a write from which on people are told that the next checkpoint waits for it.
_WORTH_A_LINE = 1.0


class WriteProgress:
    """The progress of one write after another."""

    def __init__(self, writer: BackgroundWriter, ranks: RankOps, recorder: Recorder, now: Callable[[], float]) -> None:
        """Tell of nothing yet; ``now`` is a clock that never goes back."""
        self._writer, self._ranks, self._recorder, self._now = writer, ranks, recorder, now
        self._step = self._total = 0
        self._began_at = self._told_at = 0.0
        self._has_warned = False

    def begin(self, step: int, total_bytes: int) -> None:
        """Follow the write of the checkpoint of ``step``, which has so many bytes of tensors on this rank."""
        self._step, self._total, self._has_warned = step, total_bytes, False
        self._began_at = self._told_at = self._now()

    def tell(self, *, delays_next: bool) -> None:
        """Record how far the write is, now and then; warn once if the next checkpoint has to wait for it."""
        now = self._now()
        if now - self._told_at >= _EVERY_SECONDS:
            self._told_at = now
            figures = {"bytes": self._writer.num_bytes, "total_bytes": self._total}
            seconds = round(now - self._began_at, 3)
            self._recorder.metric(
                {"event": "checkpoint_progress", "step": self._step, "write_seconds": seconds, **figures}
            )
        if delays_next and not self._has_warned and now - self._began_at >= _WORTH_A_LINE:
            self._has_warned = True
            self._ranks.warn(
                f"the checkpoint of step {self._step} is still being written after {now - self._began_at:.0f} s"
                f" ({self._writer.num_bytes / 1e6:.0f} of {self._total / 1e6:.0f} MB): the next one waits, and training"
                " goes on"
            )
