"""Which plans are worth a trial, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.control.decision import Point
from trimtab.plan import Plan

#: Fewer iterations than this tell nothing.
FEWEST_ITERATIONS = 3
#: A candidate predicted this much worse (in time to target) than the best could not win by being mispredicted.
_WITHIN = 0.25


def worth_a_trial(
    points: Sequence[Point], dense: Point, depth: Callable[[Point], float], is_known: Callable[[Plan], bool]
) -> list[Point]:
    """Candidates that might win and were not measured of late, shortest first.

    ``depth`` is the logarithm of a plan's advantage. Never a candidate predicted slower than dense.
    """
    fast_enough = [point for point in points if point.step_seconds < dense.step_seconds]
    if not fast_enough:
        return []
    deepest = max(map(depth, fast_enough))
    unknown = [point for point in fast_enough if depth(point) > deepest - _WITHIN and not is_known(point.plan)]
    return sorted(unknown, key=lambda point: point.step_seconds)


def within_budget(points: Sequence[Point], iterations: int, budget_seconds: float) -> tuple[list[Point], float]:
    """The first of the points whose trials, all together, are predicted to fit the budget, and that prediction.

    Each costs its iterations, and one more for snapshot, restore and the change of plan.
    """
    chosen: list[Point] = []
    predicted = 0.0
    for point in points:
        seconds = (iterations + 1) * point.step_seconds
        if predicted + seconds > budget_seconds:
            break
        predicted += seconds
        chosen.append(point)
    return chosen, predicted
