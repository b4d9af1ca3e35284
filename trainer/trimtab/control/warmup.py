"""How training begins: a few steps before the first choice, dense ones unless they would take too long."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from trimtab.control.decision import Point
from trimtab.control.types import ControllerSettings
from trimtab.plan import FusionPlan, Plan

#: The warm-up is cut short when its steps would take longer than this altogether.
_MOST_SECONDS = 1.0
#: Steps that pass between a decision and the first step under it.
_STEPS_TO_ADOPT = 2


def num_steps(point: Point, wanted: int) -> int:
    """How many steps of a plan the warm-up takes: fewer the slower they are, none where a few would cost a run."""
    return min(int(_MOST_SECONDS / point.step_seconds), wanted)


def instead_of_dense(
    evaluate: Callable[[Plan], Point], dense: Point, settings: ControllerSettings, fusion: FusionPlan
) -> Point | None:
    """What to begin with where dense steps would take too long: the middle of the ratios, by its fastest collective.

    Nothing is known yet of computing and selecting. From the middle (in the logarithm) no ratio is far: steps at the
    largest took twice as long as those of the plan that followed, and those at the smallest may need twice as many.
    """
    if num_steps(dense, settings.warmup_steps) == 0 or (1 + _STEPS_TO_ADOPT) * dense.step_seconds <= _MOST_SECONDS:
        return None
    ratio = sqrt(settings.min_ratio * settings.max_ratio)
    plans = [Plan(ratio, each, settings.sparsifier, fusion) for each in settings.collectives]
    chosen = min(map(evaluate, plans), key=lambda point: point.step_seconds)
    return chosen if chosen.step_seconds < dense.step_seconds else None
