"""With which steps training begins, and how many of them there are."""

from __future__ import annotations

import pytest
from trimtab.control import warmup
from trimtab.control.decision import Prediction
from trimtab.plan import dense_plan


def steps_of(seconds: float) -> Prediction:
    return Prediction(dense_plan(), 0.0, 0.0, 1.0, 1.0, seconds)


@pytest.mark.parametrize(("seconds", "num_steps"), [(0.01, 20), (0.1, 10), (0.4, 2), (1.0, 1), (1.5, 0)])
def test_a_warm_up_takes_no_longer_than_a_second(seconds: float, num_steps: int) -> None:
    assert warmup.num_steps(steps_of(seconds), wanted=20) == num_steps


@pytest.mark.parametrize(
    ("seconds", "wanted", "begins_with_a_choice"),
    [
        (0.1, 20, False),  # three steps take less than a second
        (0.34, 20, True),
        (1.0, 20, True),
        (1.5, 20, False),  # no warm-up at all: the first choice is the real one
        (0.34, 0, False),  # the job asks for none
    ],
)
def test_slow_dense_steps_are_replaced_by_a_choice_from_what_is_assumed(
    seconds: float, wanted: int, begins_with_a_choice: bool
) -> None:
    assert warmup.takes_too_long(steps_of(seconds), wanted) is begins_with_a_choice
