"""Guards that send the job back to dense, whatever the models say. Each is a pure judgement with its reason."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from trimtab.control.cost_model.clipped_mean import clipped_mean
from trimtab.control.decision import Prediction
from trimtab.control.types import StepReport

#: Steps in a row that had to be dropped. (One alone is everyday life under a gradient scaler.)
NON_FINITE_STEPS = 2
#: Steps under a plan before its residual or its speed are judged.
_FEWEST_STEPS = 16
#: Steps back that a growing residual is looked for.
RESIDUAL_WINDOW = 64
#: A gain above this leaves a residual that has yet to fill up: more is sent at each step than is held back.
_FILLED_BELOW_GAIN = 0.5
#: Step time over dense's at which a plan is left: the one after several steps, the other at once.
_SLOWER_THAN_DENSE, _MUCH_SLOWER_THAN_DENSE = 1.05, 1.5
_SEVERAL_STEPS = 5
#: Seconds whose steps are judged together.
_JUDGED_SECONDS = 10.0


@dataclass(frozen=True)
class GuardRailViolation:
    """The plan is to be left for dense."""

    reason: str
    step_seconds: float | None = None
    """Seconds of a step, if the plan was too slow, which it need not be on another network."""


class ResidualWatch:
    """The residual's norm and the gain of the last steps under one plan, of which each has a watch of its own."""

    def __init__(self) -> None:
        self._norms: deque[float] = deque(maxlen=RESIDUAL_WINDOW)
        self._gains: deque[float] = deque(maxlen=RESIDUAL_WINDOW)

    def observe(self, norm: float, gain: float) -> None:
        """Record the residual's norm after a step, and the gain of that step."""
        self._norms.append(norm)
        self._gains.append(gain)

    def growth(self) -> str | None:
        """Return how the residual grows, if it does without bound."""
        return growing_residual(list(self._norms), list(self._gains))


def alarm(
    num_dropped_in_a_row: int, residual: ResidualWatch, steps: Sequence[StepReport], dense: Prediction | None
) -> GuardRailViolation | None:
    """Return why to go back to dense now, if at all.

    Args:
        num_dropped_in_a_row: Steps that were dropped since the last one that was not.
        residual: The residual under the present plan.
        steps: Those under the present plan on this network.
        dense: Dense as predicted; None without a network.
    """
    reason = non_finite(num_dropped_in_a_row) or residual.growth()
    if reason is not None:
        return GuardRailViolation(reason)
    return None if dense is None else slower_than_dense(steps, dense)


def non_finite(dropped_in_a_row: int) -> str | None:
    """Return why the plan is left if gradients are not finite in too many steps in a row."""
    if dropped_in_a_row < NON_FINITE_STEPS:
        return None
    return f"{dropped_in_a_row} steps in a row had gradients that are not finite"


def growing_residual(norms: Sequence[float], gains: Sequence[float]) -> str | None:
    """Return how the residual grows, if it does without bound.

    What is held back grows with the square root of time while it fills up, at most in proportion to time if nothing
    ever got through, and for a while with the gradient itself. Growth by more than the square of time, that was fast
    before already, means that it feeds on itself. That is if it was filled: training begins with gradients of which a
    few elements are nearly all, and from next to nothing a residual grows many times over.

    Args:
        norms: Norms of the residual after the last steps under a plan.
        gains: Gains of the same steps.
    """
    norms, gains = norms[-RESIDUAL_WINDOW:], gains[-RESIDUAL_WINDOW:]
    if len(norms) < _FEWEST_STEPS:
        return None
    ends = (len(norms) // 4 + 1, len(norms) // 2 + 1, len(norms))
    quarter, half, now = (median(norms[end - 4 : end]) for end in ends)
    if median(gains[ends[0] - 4 : ends[0]]) > _FILLED_BELOW_GAIN:
        return None
    if now <= 4 * half or half <= 2 * quarter or quarter == 0:
        return None
    return f"the residual grew {now / half:.1f}-fold in {len(norms) - len(norms) // 2} steps"


def slower_than_dense(steps: Sequence[StepReport], dense: Prediction) -> GuardRailViolation | None:
    """Return a violation if the plan's measured steps on the present network take longer than dense's would.

    Dense's would have computed as long as these did: other work on the machine slows down both, and a prediction by the
    steps before knows nothing of it.

    A plan whose steps were short here until a moment ago has not failed: the network has changed, dense would suffer
    far more, and the monitor will say so before most steps of the last seconds are long ones.

    Args:
        steps: Those under the plan on this network.
        dense: Dense as predicted on this network.
    """
    if len(steps) < 2:
        return None
    if len(steps) < _SEVERAL_STEPS:
        judged, allowed = [min(steps[-2:], key=lambda step: step.step_seconds)], _MUCH_SLOWER_THAN_DENSE
    else:
        judged, allowed = list(_last(steps, _JUDGED_SECONDS)), _SLOWER_THAN_DENSE
    measured = clipped_mean(step.step_seconds for step in judged)
    computing = max(dense.compute_seconds, clipped_mean(step.compute_seconds for step in judged))
    needed = computing + dense.sync_seconds
    if measured <= allowed * needed:
        return None
    return GuardRailViolation(f"its steps take {measured:.3f} s where dense needs {needed:.3f} s", measured)


def _last(steps: Sequence[StepReport], seconds: float) -> Sequence[StepReport]:
    """Return the last steps that took so long altogether, and no fewer than a few."""
    total = 0.0
    for count, step in enumerate(reversed(steps), 1):
        total += step.step_seconds
        if total >= seconds and count >= _SEVERAL_STEPS:
            return steps[-count:]
    return steps
