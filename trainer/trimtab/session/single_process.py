"""What a session does beside its steps where one process trains alone: record them, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from trimtab.data.loops import Loops
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.phase_timer import Phase, PhaseTimer
from trimtab.run_files.recorder import Recorder
from trimtab.session.step_counter import StepCounter
from trimtab.session.step_metrics import number


class NoTrials:
    """Stands for a `TrialRunner`: there is no other plan to try."""

    is_active = False
    is_suspended = False

    def leave(self) -> None:
        """Leave no trial."""


class NoExchangeCheckpoint:
    """Stands for an `ExchangeCheckpoint`: nothing is held back that a checkpoint would keep."""

    def save(self, folder: str | Path, step: int) -> None:
        """Write nothing."""

    def load(self, folder: str | Path, own_step: int) -> int:
        """Return the step at which the session is."""
        return own_step


class FollowUpAlone:
    """Stands for a `StepFollowUp`: records each step."""

    has_left_out = False

    def __init__(
        self,
        recorder: Recorder,
        loops: Loops,
        phases: PhaseTimer,
        steps: StepCounter,
        metric: Callable[[float | None, dict[Phase, float]], dict[str, Any]],
        after_step: Callable[[], None],
    ) -> None:
        """``metric`` makes a line of ``metrics.jsonl`` of a step's loss and of its seconds by phase.

        ``after_step`` is called once a step is counted.
        """
        self._after_step = after_step
        self._recorder, self._loops, self._phases, self._steps, self._metric = recorder, loops, phases, steps, metric

    def after_exchange(self, outcome: Outcome) -> str:
        """Name no rank whose gradients were not finite: an optimizer takes them as they are."""
        return ""

    def after_step(self, outcome: Outcome, loss: Tensor | float | None, scale: float | None, dropped_by: str) -> None:
        """Record the step."""
        self._recorder.metric(self._metric(number(loss), self._phases.lap()))
        self._loops.stepped(in_trial=False)
        self._steps.count()
        self._after_step()

    def end_round(self) -> None:
        """End no round of local steps."""

    def trials_ended(self, have_begun: bool) -> None:
        """Take up the plan again from no trial."""
