"""What the loops over batches need of the session that owns them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol

from trimtab.data.replay import Replay
from trimtab.plan.plan import Plan


class People(Protocol):
    """Takes lines for people: `trimtab.session.rank_ops.RankOps`."""

    def say(self, what: str) -> None:
        """Print a line, where several processes train."""

    def warn(self, what: str, /, *, on_each: bool = False) -> None:
        """Print a line; with ``on_each`` any rank's own."""


class LoopEvents(Protocol):
    """Is told where loops come to: `trimtab.session.training.Training`."""

    def on_next_batch(self, *, is_outermost: bool) -> None:
        """Note that a loop goes on to its next batch, or to its end; others may be within the outermost."""

    def on_epoch_end(self) -> None:
        """Note that a loop of which steps were made has ended, on every rank at the same step."""

    def on_loop_left(self) -> None:
        """Note that such a loop was left, which an exception does on one rank alone."""

    def trials_ended(self, have_begun: bool) -> None:
        """Note that trials are over, if they had begun."""


class Control(Protocol):
    """The connection to the controller: `trimtab.session.announcements.ControlMessages`."""

    @property
    def can_run_trials(self) -> bool:
        """True if the controller asks for trials where they can be run."""
        ...


class TrialRunner(Protocol):
    """Runs trials in a loop: `trimtab.session.trials.TrialRunner`."""

    def run(
        self, replay: Replay, others: list[Replay], plans: Sequence[Plan], iterations: int
    ) -> Generator[Any, None, str | None]:
        """Give batches of ``replay`` for ``iterations`` steps under each plan, while ``others`` are under way as well.

        Returns:
            Why no further trials can be run, on every rank the same; None where they can.
        """
        ...
