"""How training begins: a few steps before the first choice by what was measured."""

from __future__ import annotations

from trimtab.control.decision import Prediction

#: The warm-up is cut short when its steps would take longer than this altogether.
_MOST_SECONDS = 1.0


def num_steps(prediction: Prediction, wanted: int) -> int:
    """How many steps of a plan the warm-up takes: fewer the slower they are, none where a few would cost a run."""
    return min(int(_MOST_SECONDS / prediction.step_seconds), wanted)
