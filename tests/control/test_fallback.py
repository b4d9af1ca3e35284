"""For how long dense is kept after a guard."""

from __future__ import annotations

import pytest
from trimtab.control.decision import Prediction
from trimtab.control.fallback import Fallback
from trimtab.plan import Plan, dense_plan

PLAN = Plan.parse("0.01/all-gather")
DENSE = Prediction(dense_plan(), 0.0, 0.9, 1.0, 1.0, 1.0)


def held_after(fallback: Fallback, step: int) -> int:
    fallback.begin(PLAN, step)
    return fallback.hold_until_step - step


def guards_in_a_row(fallback: Fallback, count: int) -> list[int]:
    """Holds of guards that each come as soon as another plan is tried; the first at step 100."""
    holds, step = [], 100
    for _ in range(count):
        holds.append(held_after(fallback, step))
        step = fallback.hold_until_step + 5
    return holds


def test_each_guard_holds_dense_twice_as_long_up_to_a_most():
    assert guards_in_a_row(Fallback(), 12) == [10, 20, 40, 80, 160, 320, 640, 640, 640, 640, 640, 640]


@pytest.mark.parametrize("before", [1, 3, 12])
def test_after_ten_holds_without_a_guard_the_next_is_taken_for_the_first(before):
    fallback = Fallback()
    last = guards_in_a_row(fallback, before)[-1]
    assert held_after(fallback, fallback.hold_until_step + 10 * last + 1) == 10


@pytest.mark.parametrize("before", [1, 3, 12])
def test_until_then_none_is_forgotten(before):
    fallback = Fallback()
    last = guards_in_a_row(fallback, before)[-1]
    assert held_after(fallback, fallback.hold_until_step + 10 * last) == min(2 * last, 640)


def test_another_network_ends_a_hold_for_speed_and_forgets_no_guard():
    fallback = Fallback()
    guards_in_a_row(fallback, 4)
    begun = 10_000
    assert fallback.why([9.0, 8.0], DENSE) is not None
    fallback.begin(PLAN, begun)
    fallback.reset(begun + 3)
    assert fallback.hold_until_step == begun + 3
    assert fallback.banned == set()
    assert held_after(fallback, begun + 20) == 20


def test_another_network_does_not_end_the_hold_of_what_was_not_finite():
    fallback = Fallback()
    fallback.begin(PLAN, 100)
    fallback.reset(103)
    assert fallback.hold_until_step == 110
