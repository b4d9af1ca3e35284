"""Leaving a plan that went wrong for dense: when, for how long, and what is not to be chosen again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from trimtab.control import guards
from trimtab.control.decision import Prediction
from trimtab.control.types import StepReport
from trimtab.plan import Plan

#: Steps of dense after a guard, doubled each time up to the most.
_HOLD_STEPS = 10
_MAX_HOLD_STEPS = 640
#: So many times the last hold without a guard, and the next is taken for the first: training moves on.
_GOOD_HOLDS = 10


class Fallback:
    """What the guards need to know of the steps so far, and what came of them."""

    def __init__(self) -> None:
        self.num_guards = 0
        """Since the last long stretch without one."""
        self.hold_until_step = 0
        """Step at which the last hold ends or ended."""
        self.banned: set[tuple[str, float]] = set()
        """Collectives and ratios that failed on this network."""
        self._held_for_speed = False
        self._dropped_in_a_row = 0
        self._residual_norms: deque[float] = deque(maxlen=guards.RESIDUAL_WINDOW)
        self._gains: deque[float] = deque(maxlen=guards.RESIDUAL_WINDOW)

    def observe(self, report: StepReport) -> None:
        """A step has ended, whatever came of it.

        Steps that a GradScaler drops while it looks for a scale say nothing of the plan.
        """
        if report.finite:
            self._dropped_in_a_row = 0
        elif report.loss_scale <= 1.0:
            self._dropped_in_a_row += 1

    def observe_residual(self, norm: float, gain: float) -> None:
        """The residual's norm after a step under the present plan, and the gain of that step."""
        self._residual_norms.append(norm)
        self._gains.append(gain)

    def restart(self) -> None:
        """Another plan: the residual grows anew."""
        self._residual_norms.clear()
        self._gains.clear()

    def why(self, step_times: Sequence[float], dense: Prediction | None) -> str | None:
        """Why to go back to dense now, if at all.

        ``step_times``: seconds under the present plan on this network. ``dense``: as predicted, None without a network.
        """
        self._held_for_speed = False
        reason = guards.non_finite(self._dropped_in_a_row) or guards.growing_residual(
            list(self._residual_norms), list(self._gains)
        )
        if reason is None and dense is not None:
            reason = guards.slower_than_dense(step_times, dense)
            self._held_for_speed = reason is not None
        return reason

    def begin(self, plan: Plan, step: int) -> None:
        """The plan is left for dense."""
        if self.num_guards and step - self.hold_until_step > _GOOD_HOLDS * _hold_steps(self.num_guards):
            self.num_guards = 0
        self.num_guards += 1
        self.hold_until_step = step + _hold_steps(self.num_guards)
        self.banned.add((plan.collective, plan.ratio))

    def reset(self, step: int) -> None:
        """Another network: what was too slow on the last one need not be here."""
        self.banned.clear()
        if self._held_for_speed:
            self.hold_until_step = min(self.hold_until_step, step)


def _hold_steps(num_guards: int) -> int:
    return min(_HOLD_STEPS << (num_guards - 1), _MAX_HOLD_STEPS)
