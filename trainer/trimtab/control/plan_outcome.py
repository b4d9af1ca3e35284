"""The outcome of a change of plan: the steps before and after it, measured on the same network."""

from __future__ import annotations

from collections.abc import Callable
from math import log

from trimtab.control.cost_model.clipped_mean import clipped_mean
from trimtab.control.decision import Decision, Measured
from trimtab.control.monitors.recent_steps import RecentSteps
from trimtab.control.types import StepReport
from trimtab.plan.plan import Plan

#: Steps whose mean becomes the measured step time of a decision.
NUM_STEPS = 10
#: Fewer than these say nothing.
_FEWEST_STEPS = 3
#: A step fits a network when its exchange is off by less than this factor there, or by less than this share of the
#: step: short exchanges vary by more, and to leave those steps out would leave out the slow ones.
_FITS, _FITS_BY_SHARE = log(1.5), 0.25


class PlanOutcome:
    """Waits for enough steps under a new plan, then tells once how they compare with those of the previous plan.

    One is made for each network: what was mispredicted on another says nothing of this one.
    """

    def __init__(self, steps: RecentSteps) -> None:
        self._steps = steps
        self._pending: tuple[Decision, Callable[[Plan], float]] | None = None
        self._has_underperformed = False

    def begin(self, decision: Decision, sync_seconds: Callable[[Plan], float]) -> None:
        """Wait for the outcome of a change that was decided.

        Args:
            decision: The change.
            sync_seconds: Predicts a plan's exchange [s] on the network of the decision.
        """
        self._pending = (decision, sync_seconds)

    def review(self, step: int, now: float) -> tuple[Measured | None, Decision | None]:
        """Return what `close` returns, and the decision if its plan underperforms and the choice is to be opened again.

        The decision is returned once on a network, so that two plans that are alike do not take turns.
        """
        decision = self._pending[0] if self._pending is not None else None
        measured = self.close(step, now)
        if decision is None or measured is None or self._has_underperformed:
            return measured, None
        self._has_underperformed = underperforms(decision, measured)
        return measured, decision if self._has_underperformed else None

    def close(self, step: int, now: float) -> Measured | None:
        """Return what the pending change turned out to be, and wait for it no longer.

        Returns:
            The measured outcome; None without a change, or if too few steps have passed to say so.
        """
        if self._pending is None:
            return None
        (decision, sync_seconds), self._pending = self._pending, None
        times = [report.step_seconds for report in self._steps.under(decision.adopted)]
        if len(times) < _FEWEST_STEPS:
            return None
        previous_seconds = self._previous_seconds(decision.previous, sync_seconds(decision.previous))
        return Measured(decision.id, step, now, previous_seconds, clipped_mean(times), len(times))

    def _previous_seconds(self, previous: Plan, predicted: float) -> float | None:
        """Return the mean step time that the previous plan had on this network, from its last steps that fit it."""
        fitting = [report.step_seconds for report in self._steps.under(previous) if _fits(report, predicted)]
        return clipped_mean(fitting[-NUM_STEPS:]) if fitting else None


def underperforms(decision: Decision, measured: Measured) -> bool:
    """Return whether a step that was predicted to become shorter has become longer: the choice was mispredicted."""
    was_to_be_shorter = decision.predicted_seconds < decision.predicted_previous_seconds
    return was_to_be_shorter and measured.previous_seconds is not None and measured.seconds > measured.previous_seconds


def sends_in_more_parts(plan: Plan, other: Plan) -> bool:
    """Return whether a plan's timetable sends more buffers than another plan does, or more of them at the same time."""
    is_finer = len(plan.fusion.cuts) > len(other.fusion.cuts) or plan.num_links > other.num_links
    return is_finer and plan.timetable is not None


def _fits(report: StepReport, predicted: float) -> bool:
    """Return whether a step's exchange is what it would be on a network on which so many seconds are predicted."""
    measured = report.exchange_seconds(predicted)
    if measured <= 0:
        return False
    return abs(log(measured / predicted)) < _FITS or abs(measured - predicted) < _FITS_BY_SHARE * report.step_seconds
