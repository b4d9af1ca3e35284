"""Leaving a plan that went wrong for dense: for how long, and which plans are not to be chosen again."""

from __future__ import annotations

from typing import Any

from trimtab.control.guards import Alarm
from trimtab.control.types import StepReport

#: Steps of dense after a guard, doubled each time up to the most.
_HOLD_STEPS = 10
_MAX_HOLD_STEPS = 640
#: A guard that comes later than this many times the last hold counts as the first: training has moved on.
_GOOD_HOLDS = 10


class Fallback:
    """How often guards have sent the job back to dense, and until when it stays there."""

    def __init__(self) -> None:
        self.num_guards = 0
        """How often a guard has acted since the last long stretch without one."""
        self.hold_until_step = 0
        """Step at which the last hold ends or ended."""
        self.num_dropped_in_a_row = 0
        """Steps that were dropped since the last one that was not."""
        self._is_for_speed = False

    def observe(self, report: StepReport) -> None:
        """A step has ended, whatever came of it.

        Steps that a GradScaler drops while it looks for a scale say nothing of the plan.
        """
        if report.finite:
            self.num_dropped_in_a_row = 0
        elif report.loss_scale <= 1.0:
            self.num_dropped_in_a_row += 1

    def holds(self, step: int) -> bool:
        """Whether dense is still to be kept."""
        return step < self.hold_until_step

    def begin(self, alarm: Alarm, step: int) -> None:
        """A plan is left for dense."""
        if self.num_guards and step - self.hold_until_step > _GOOD_HOLDS * _hold_steps(self.num_guards):
            self.num_guards = 0
        self.num_guards += 1
        self.hold_until_step = step + _hold_steps(self.num_guards)
        self._is_for_speed = alarm.is_for_speed

    def state_dict(self) -> dict[str, int]:
        """How often and until when, as JSON data."""
        return {"num_guards": self.num_guards, "hold_until_step": self.hold_until_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`; ``state`` may hold more."""
        self.num_guards, self.hold_until_step = state["num_guards"], state["hold_until_step"]

    def network_changed(self, step: int) -> None:
        """What was too slow on the last network need not be on this one: a hold for that ends here."""
        if self._is_for_speed:
            self.hold_until_step = min(self.hold_until_step, step)


def _hold_steps(num_guards: int) -> int:
    return min(_HOLD_STEPS << (num_guards - 1), _MAX_HOLD_STEPS)
