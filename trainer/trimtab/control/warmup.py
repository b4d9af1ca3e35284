"""How training begins: a few steps before the first choice, dense ones unless they would take too long."""

from __future__ import annotations

from trimtab.control.decision import Prediction

#: The warm-up is cut short when its steps would take longer than this altogether.
_MOST_SECONDS = 1.0
#: Steps that pass between a decision and the first step under it.
_STEPS_TO_ADOPT = 2


def num_steps(prediction: Prediction, wanted: int) -> int:
    """How many steps of a plan the warm-up takes: fewer the slower they are, none where a few would cost a run."""
    return min(int(_MOST_SECONDS / prediction.step_seconds), wanted)


def takes_too_long(dense: Prediction, wanted: int) -> bool:
    """Whether to begin with a choice by what is assumed of the machine, as dense steps would be too long a beginning.

    Where even one would be, there is no warm-up: then the first choice is the real one.
    """
    return num_steps(dense, wanted) > 0 and (1 + _STEPS_TO_ADOPT) * dense.step_seconds > _MOST_SECONDS
