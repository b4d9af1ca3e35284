"""Controllers whose messages a test has written down, in the place of rank 0's controller."""

from __future__ import annotations

from typing import Any

from trimtab.control.messages import AdoptPlan, Message
from trimtab.control.types import StepReport
from trimtab.plan.plan import Plan


class Script:
    """Stands where rank 0's controller stands, with its messages written down beforehand."""

    view = None
    can_run_trials = True
    offers_rounds = False

    def __init__(self, messages: dict[int, Message]) -> None:
        self.messages, self.now, self.reports = messages, 0, []

    @property
    def has_message(self) -> bool:
        return self.poll() is not None

    def poll(self) -> Message | None:
        """The first message that is due: under overlap the vote may ask when its step is over already."""
        return self.messages[due] if (due := self._due()) is not None else None

    def sent(self) -> None:
        if (due := self._due()) is not None:
            del self.messages[due]

    def _due(self) -> int | None:
        return min((step for step in self.messages if step <= self.now), default=None)

    def step(self, before: Any, steps_left: int) -> None:
        self.now += 1

    def in_round(self, steps_left: int) -> None: ...

    def profile(self, profile: Any) -> None: ...

    def loop_ended(self, before: Any) -> None: ...

    def trials(self, reports: list[Any]) -> None:
        self.reports.append(reports)

    def close(self) -> None: ...


class AdoptsAt(Script):
    """Rank 0's controller, which has every rank adopt a plan after each of some rounds."""

    def __init__(self, plans: dict[int, Plan]) -> None:
        super().__init__({step: AdoptPlan(plan) for step, plan in plans.items()})


class Heard(Script):
    """A controller that keeps what it is told of steps."""

    def __init__(self) -> None:
        super().__init__({})
        self.losses: list[float | None] = []
        self.loops: list[float] = []

    def step(self, before: StepReport | None, steps_left: int) -> None:
        super().step(before, steps_left)
        if before is not None:
            self.losses.append(before.loss)
            self.loops.append(before.steps_per_epoch)

    def loop_ended(self, before: StepReport | None) -> None:
        self.losses.append(None if before is None else before.loss)
