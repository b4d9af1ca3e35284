"""The checks of a soak find what they are there for: other weights, and gradients that are lost or doubled."""

from __future__ import annotations

from typing import Any

import pytest
from soak.invariants import Invariants


def line(step: int, weights: int = 5, attempt: int = 1, **sums: float) -> dict[str, Any]:
    told = {name: [value] for name, value in sums.items()}
    return {"step": step, "attempt": attempt, "weights": weights, "time": float(step), **told}


def test_equal_weights_on_all_ranks_are_no_problem() -> None:
    checked = Invariants(2, replays=True)
    for step in (1, 2):
        checked.add(0, line(step, weights=step))
        checked.add(1, line(step, weights=step))
    assert checked.problems == []
    assert checked.num_weights == 4


def test_other_weights_on_one_rank_are_found() -> None:
    checked = Invariants(2, replays=True)
    checked.add(0, line(1, weights=5))
    checked.add(1, line(1, weights=6))
    assert checked.problems == ["step 1: rank 1 has other weights than were there before"]


@pytest.mark.parametrize("replays", [True, False])
def test_a_step_that_is_trained_again_gives_the_same_weights_where_the_plan_is_fixed(replays: bool) -> None:
    checked = Invariants(1, replays=replays)
    checked.add(0, line(1, weights=5, attempt=1))
    checked.add(0, line(1, weights=6, attempt=2))
    assert bool(checked.problems) == replays


@pytest.mark.parametrize(("held", "is_lost"), [(1.0, False), (0.9, True), (1.1, True)])
def test_gradients_are_applied_or_held_back(held: float, is_lost: bool) -> None:
    checked = Invariants(2, replays=True)
    checked.add(0, line(4, gradients=4.0, applied=2.0, held=1.0))
    assert checked.num_sums == 0
    checked.add(1, line(4, gradients=2.0, applied=2.0, held=held))
    assert checked.num_sums == 1
    assert bool(checked.problems) == is_lost


def test_sums_of_two_attempts_are_not_mixed() -> None:
    checked = Invariants(2, replays=True)
    checked.add(0, line(4, attempt=1, gradients=1.0, applied=1.0, held=0.0))
    checked.add(1, line(4, attempt=2, gradients=1.0, applied=1.0, held=0.0))
    assert checked.num_sums == 0
