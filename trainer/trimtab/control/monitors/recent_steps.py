"""The last steps that tell what their plan takes on the present network."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from trimtab.control.types import StepReport
from trimtab.plan.plan import Plan

_NUM_KEPT = 64
#: Steps after a change of the network that tell nothing of it: queues drain, and connections find their pace.
_TRANSIENT_STEPS = 3


@dataclass(frozen=True)
class TimedStep:
    """A step and when it ended."""

    report: StepReport
    end: float

    @property
    def start(self) -> float:
        """The time at which it began, or the round of which it is the mean."""
        return self.end - self.report.step_seconds * max(1, self.report.plan.local_steps)


class RecentSteps:
    """The last steps, first to last, without those whose time is not their plan's."""

    def __init__(self) -> None:
        self._steps: deque[TimedStep] = deque(maxlen=_NUM_KEPT)
        self._last_plan: Plan | None = None
        self._num_transient = 0

    def add(self, report: StepReport, end: float) -> bool:
        """Keep a step unless it tells nothing, and return whether it was kept.

        A step tells nothing if it was dropped, is the first under its plan, and so carries the change itself, or
        follows a change of the network too closely.
        """
        is_first_of_plan = report.plan != self._last_plan
        self._last_plan = report.plan
        if not was_applied(report) or is_first_of_plan:
            return False
        if self._num_transient > 0:
            self._num_transient -= 1
            return False
        self._steps.append(TimedStep(report, end))
        return True

    def network_changed(self) -> None:
        """Keep none of the next few steps, which carry the change itself."""
        self._num_transient = _TRANSIENT_STEPS

    def __iter__(self) -> Iterator[TimedStep]:
        return iter(self._steps)

    def since(self, plan: Plan, moment: float) -> list[StepReport]:
        """Return the steps under one version of a plan that began after a moment."""
        return [step.report for step in self._steps if step.report.plan == plan and step.start > moment]

    def under(self, plan: Plan) -> list[StepReport]:
        """Return the steps that ran under one version of a plan."""
        return [step.report for step in self._steps if step.report.plan == plan]


def was_applied(report: StepReport) -> bool:
    """Return whether the optimizer took the step: else it was dropped on every rank."""
    return report.finite and (report.gain is None or isfinite(report.gain))
