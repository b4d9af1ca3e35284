"""Leaving a plan that went wrong for dense: for how long, and which plans are not to be chosen again."""

from __future__ import annotations

from typing import Any

from trimtab_api.throttling import Backoff

from trimtab.control.monitors.guards import GuardRailViolation
from trimtab.control.types import StepReport

#: Steps of dense after a guard, doubled each time up to the most.
_HOLD_STEPS = Backoff(first=10, longest=640)
#: What was too slow is not tried again for so long at least, doubled likewise: a guard judges the steps of as many
#: seconds, and what disturbed those (other work on the machine) may not be over. Steps of a few milliseconds would be
#: back amid it.
_HOLD_SECONDS = Backoff(first=10.0, longest=640.0)
#: Seconds for which the monitors are heard first, where exchanges disagree with their predictions: where the network
#: has become slow dense would suffer far more, and monitors tell of it one to four seconds later.
_HEARD_SECONDS = 5.0
#: A guard that comes later than this many times the last hold counts as the first: training has moved on.
_GOOD_HOLDS = 10


class DenseFallback:
    """Counts how often guards have sent the job back to dense, and keeps until when it stays there."""

    def __init__(self) -> None:
        self.num_guards = 0
        """Number of times that a guard has acted since the last long stretch without one."""
        self.hold_until_step = 0
        """Step at which the last hold ends or ended."""
        self._hold_until = float("-inf")
        """Time at which the last hold for speed ends or ended."""
        self._first_alarm: float | None = None
        """Time at which the plan first seemed too slow, while monitors are heard."""
        self.num_dropped_in_a_row = 0
        """Steps that were dropped since the last one that was not."""
        self._too_slow: float | None = None
        """Seconds that a step took under what the last guard has left for its speed."""

    def observe(self, report: StepReport) -> None:
        """Count the steps in a row that were dropped.

        Steps that a GradScaler drops while it looks for a scale say nothing of the plan.
        """
        if report.finite:
            self.num_dropped_in_a_row = 0
        elif report.loss_scale <= 1.0:
            self.num_dropped_in_a_row += 1

    def holds(self, step: int, now: float) -> bool:
        """Return whether dense is still to be kept."""
        return step < self.hold_until_step or now < self._hold_until

    def due(self, alarm: GuardRailViolation | None, now: float, *, is_network_known: bool) -> GuardRailViolation | None:
        """Return the alarm if it is to be acted upon now.

        An alarm for speed waits some seconds for the monitors, which could say what has changed.

        Args:
            alarm: Why to leave the plan for dense; None if nothing is wrong.
            now: Seconds.
            is_network_known: False if the network may have changed and is yet to be measured; only then an alarm waits.
        """
        if alarm is None:
            self._first_alarm = None
        elif alarm.step_seconds is not None and not is_network_known:
            self._first_alarm = now if self._first_alarm is None else self._first_alarm
            return alarm if now - self._first_alarm >= _HEARD_SECONDS else None
        return alarm

    def begin(self, alarm: GuardRailViolation, step: int, now: float) -> None:
        """Leave a plan for dense; each further guard doubles the time, up to a limit.

        Args:
            alarm: Why the plan is left.
            step: The present step, from which dense is held.
            now: Seconds.
        """
        self._first_alarm = None
        if self._is_forgotten(step, now):
            self.num_guards = 0
        self.num_guards += 1
        self.hold_until_step = step + _hold_steps(self.num_guards)
        self._too_slow = alarm.step_seconds
        if alarm.step_seconds is not None:
            self._hold_until = now + _hold_seconds(self.num_guards)

    def _is_forgotten(self, step: int, now: float) -> bool:
        """Return whether the last guard was so long ago that the next is taken for the first."""
        num_steps, seconds = _GOOD_HOLDS * _hold_steps(self.num_guards), _GOOD_HOLDS * _hold_seconds(self.num_guards)
        return step - self.hold_until_step > num_steps and now - self._hold_until > seconds

    def state_dict(self) -> dict[str, int]:
        """Return how often guards have acted and until when dense is held, as JSON data."""
        return {"num_guards": self.num_guards, "hold_until_step": self.hold_until_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`; ``state`` may hold more."""
        self.num_guards, self.hold_until_step = state["num_guards"], state["hold_until_step"]

    def network_changed(self, step: int, dense_seconds: float) -> None:
        """End a hold for speed if dense would now be slower than the plan that was left.

        That plan need not be too slow on another network. If dense would still be faster, nothing is new.

        Args:
            step: The present step.
            dense_seconds: Predicted seconds of a dense step on the new network.
        """
        if self._too_slow is not None and dense_seconds > self._too_slow:
            self.hold_until_step = min(self.hold_until_step, step)
            self._hold_until = float("-inf")


def _hold_steps(num_guards: int) -> int:
    return int(_HOLD_STEPS.delay(max(0, num_guards - 1)))


def _hold_seconds(num_guards: int) -> float:
    return _HOLD_SECONDS.delay(max(0, num_guards - 1))
