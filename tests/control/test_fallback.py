"""For how long dense is kept after a guard."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trimtab.control.fallback import DenseFallback
from trimtab.control.monitors.guards import GuardRailViolation
from trimtab.control.types import StepReport
from trimtab.plan.plan import dense_plan

NOT_FINITE, TOO_SLOW = GuardRailViolation("not finite"), GuardRailViolation("too slow", step_seconds=0.2)
DROPPED = StepReport(1, dense_plan(), 0.2, 0.1, 0.0, 0.1, 0, 0, 1.0, 0.0, finite=False)


def held_after(fallback: DenseFallback, step: int) -> int:
    fallback.begin(NOT_FINITE, step, now=float(step))
    return fallback.hold_until_step - step


def guards_in_a_row(fallback: DenseFallback, count: int) -> list[int]:
    """Holds of guards that each come as soon as another plan is tried; the first at step 100."""
    holds, step = [], 100
    for _ in range(count):
        holds.append(held_after(fallback, step))
        step = fallback.hold_until_step + 5
    return holds


def test_each_guard_holds_dense_twice_as_long_up_to_a_most():
    assert guards_in_a_row(DenseFallback(), 12) == [10, 20, 40, 80, 160, 320, 640, 640, 640, 640, 640, 640]


@pytest.mark.parametrize("before", [1, 3, 12])
def test_after_ten_holds_without_a_guard_the_next_is_taken_for_the_first(before):
    fallback = DenseFallback()
    last = guards_in_a_row(fallback, before)[-1]
    assert held_after(fallback, fallback.hold_until_step + 10 * last + 1) == 10


@pytest.mark.parametrize("before", [1, 3, 12])
def test_until_then_none_is_forgotten(before):
    fallback = DenseFallback()
    last = guards_in_a_row(fallback, before)[-1]
    assert held_after(fallback, fallback.hold_until_step + 10 * last) == min(2 * last, 640)


def test_another_network_ends_a_hold_for_speed_and_forgets_no_guard():
    fallback = DenseFallback()
    guards_in_a_row(fallback, 4)
    begun = 10_000
    fallback.begin(TOO_SLOW, begun, now=begun)
    assert fallback.holds(begun + 3, now=begun + 3)
    fallback.network_changed(begun + 3, dense_seconds=0.3)
    assert not fallback.holds(begun + 3, now=begun + 3)
    assert held_after(fallback, begun + 20) == 20


def test_where_dense_is_faster_still_than_what_was_left_another_network_ends_no_hold():
    """Readings of a network within one machine wander, and the plan would be back amid what has slowed it down."""
    fallback = DenseFallback()
    fallback.begin(TOO_SLOW, 100, now=50.0)
    fallback.network_changed(103, dense_seconds=0.15)
    assert fallback.holds(103, now=50.1)


def test_another_network_does_not_end_the_hold_of_what_was_not_finite():
    fallback = DenseFallback()
    fallback.begin(NOT_FINITE, 100, now=50.0)
    fallback.network_changed(103, dense_seconds=10.0)
    assert fallback.hold_until_step == 110


def seconds_held(fallback: DenseFallback, step: int, now: float) -> float:
    """For how long a guard keeps dense whose steps take next to no time."""
    fallback.begin(TOO_SLOW, step, now)
    return next(seconds for seconds in range(10_000) if not fallback.holds(step + 1000, now + seconds))


def test_what_was_too_slow_is_held_for_seconds_too_and_twice_as_long_each_time():
    fallback, now, held = DenseFallback(), 0.0, []
    for turn in range(8):
        held.append(seconds_held(fallback, 1000 * turn, now))
        now += held[-1] + 5
    assert held == [10, 20, 40, 80, 160, 320, 640, 640]
    assert seconds_held(fallback, 20_000, now + 6400) == 10, "after ten holds without one"


def test_for_speed_the_monitors_are_heard_first_where_exchanges_say_that_the_network_has_changed():
    fallback = DenseFallback()
    assert fallback.due(TOO_SLOW, 100.0, is_network_known=False) is None
    assert fallback.due(TOO_SLOW, 104.0, is_network_known=False) is None
    assert fallback.due(TOO_SLOW, 104.1, is_network_known=True) is TOO_SLOW, "they have spoken"
    assert fallback.due(TOO_SLOW, 105.0, is_network_known=False) is TOO_SLOW, "not for ever"


def test_an_alarm_that_ended_by_itself_gives_the_next_as_long():
    fallback = DenseFallback()
    fallback.due(TOO_SLOW, 100.0, is_network_known=False)
    assert fallback.due(None, 102.0, is_network_known=False) is None
    assert fallback.due(TOO_SLOW, 106.0, is_network_known=False) is None


def test_what_is_not_finite_waits_for_no_monitor():
    assert DenseFallback().due(NOT_FINITE, 100.0, is_network_known=False) is NOT_FINITE


def test_dropped_steps_count_until_one_is_not():
    fallback = DenseFallback()
    for _ in range(3):
        fallback.observe(DROPPED)
    assert fallback.num_dropped_in_a_row == 3
    fallback.observe(replace(DROPPED, finite=True))
    assert fallback.num_dropped_in_a_row == 0


def test_steps_that_a_scaler_drops_while_it_looks_for_a_scale_do_not_count():
    fallback = DenseFallback()
    fallback.observe(replace(DROPPED, loss_scale=65536.0))
    assert fallback.num_dropped_in_a_row == 0
