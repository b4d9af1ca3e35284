"""How many steps training takes before the first choice by what was measured."""

from __future__ import annotations

import pytest
from trimtab.control.decision import Prediction
from trimtab.control.triggers import warmup_steps
from trimtab.plan.plan import dense_plan


def steps_of(seconds: float) -> Prediction:
    return Prediction(dense_plan(), 0.0, 0.0, 1.0, 1.0, seconds)


@pytest.mark.parametrize(("seconds", "num_steps"), [(0.01, 20), (0.1, 10), (0.4, 2), (1.0, 1), (1.5, 0)])
def test_a_warm_up_takes_no_longer_than_a_second(seconds: float, num_steps: int) -> None:
    assert warmup_steps(steps_of(seconds), wanted=20) == num_steps
