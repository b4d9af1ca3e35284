"""The time of compression: a part for each buffer, and a part that goes with the elements, by scheme and ratio.

Selection samples each buffer, and wakes a thread for it: five buffers cost more than one of all their elements. Taken
for a matter of elements alone, what many buffers cost would be charged to few ones, and planners would make many.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

from trimtab.control.cost_model.interpolation import Curve, key_of
from trimtab.plan.plan import Plan

#: Seconds a buffer, as assumed before plans of unlike numbers of buffers were measured; and how much that assumption
#: weighs beside measurements, in squared buffers.
_BUFFER_SECONDS, _PRIOR_WEIGHT = 3e-4, 4.0
#: At least this share of what was measured is charged to the elements.
_LEAST_SHARE = 0.05


class CompressTimes:
    """Learns the time of compression from the sums of steps."""

    def __init__(self, of_elements: Curve) -> None:
        self._of_elements = of_elements
        self._seen: dict[str, dict[int, float]] = {}
        """Seconds of a step when last seen, by scheme and ratio, then by number of buffers."""
        self.per_buffer = _BUFFER_SECONDS
        """Seconds that each buffer adds to a step."""

    def observe(self, plan: Plan, seconds: float, step: int) -> None:
        """Learn how long a step's compression took under a plan.

        Args:
            plan: The plan of the step; dense teaches nothing.
            seconds: Summed over the step's buffers.
            step: The step's number, by which measurements age.
        """
        if plan.is_dense or seconds <= 0:
            return
        num_buffers = len(plan.fusion.cuts)
        self._seen.setdefault(_cell(plan), {})[num_buffers] = seconds
        self.per_buffer = _slope(self._seen)
        self._of_elements.observe(plan, max(_LEAST_SHARE * seconds, seconds - self.per_buffer * num_buffers), step)

    def of_elements(self, plan: Plan) -> float:
        """Return the seconds a step that all elements take together, in however many buffers."""
        return self._of_elements(plan)

    def __call__(self, plan: Plan) -> float:
        """Return the seconds that a step's compression takes under a plan."""
        return self._of_elements(plan) + self.per_buffer * len(plan.fusion.cuts)

    def of_buffer(self, plan: Plan, num_elements: int) -> Callable[[int], float]:
        """Return the seconds that a buffer's compression takes, as a function of its elements; 0 for dense.

        Args:
            plan: The plan that compresses.
            num_elements: Elements of the whole gradient.
        """
        if plan.is_dense:
            return lambda size: 0.0
        each = self._of_elements(plan) / num_elements
        return lambda size: self.per_buffer + each * size

    def state_dict(self) -> dict[str, Any]:
        """Return what was measured, as JSON data."""
        seen = {cell: [[count, seconds] for count, seconds in by.items()] for cell, by in self._seen.items()}
        return {"of_elements": self._of_elements.state_dict(), "by_buffers": seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._of_elements.load_state_dict(state["of_elements"])
        self._seen = {
            cell: {int(count): float(seconds) for count, seconds in by} for cell, by in state["by_buffers"].items()
        }
        self.per_buffer = _slope(self._seen)


def _cell(plan: Plan) -> str:
    return f"{key_of(plan)}/{plan.ratio:.3g}"


def _slope(seen: dict[str, dict[int, float]]) -> float:
    """Return the seconds by which one more buffer lengthens a step.

    The slope is that within cells, and tends to the prior if few are known.
    """
    together, squares = _PRIOR_WEIGHT * _BUFFER_SECONDS, _PRIOR_WEIGHT
    for by_count in seen.values():
        count, seconds = fmean(by_count), fmean(by_count.values())
        together += sum((each - count) * (value - seconds) for each, value in by_count.items())
        squares += sum((each - count) ** 2 for each in by_count)
    return max(0.0, together / squares)
