"""Back to dense, and why."""

from __future__ import annotations

from math import exp

from hypothesis import given
from hypothesis import strategies as st
from trimtab.control.decision import Prediction
from trimtab.control.monitors import guards
from trimtab.control.types import StepReport
from trimtab.plan.plan import dense_plan

LOW_GAINS = [0.1] * 2000
DENSE = Prediction(dense_plan(), 0.0, 0.9, 1.0, 1.0, 1.0)


def test_one_dropped_step_is_everyday_life_and_two_in_a_row_are_not():
    assert guards.non_finite(1) is None
    assert "not finite" in guards.non_finite(2)


@given(st.floats(0.1, 1.9), st.integers(16, 400))
def test_a_residual_that_fills_up_is_no_alarm(power, steps):
    assert guards.growing_residual([(1 + step) ** power for step in range(steps)], LOW_GAINS[:steps]) is None


def test_a_gradient_that_grows_once_is_no_alarm():
    assert guards.growing_residual([1.0] * 30 + [1.2**step for step in range(12)] + [9.0] * 30, LOW_GAINS[:72]) is None


def test_a_residual_that_feeds_on_itself_is():
    assert "residual grew" in guards.growing_residual([1.2**step for step in range(40)], LOW_GAINS[:40])
    assert "residual grew" in guards.growing_residual(
        [1.0] * 1000 + [1.2**step for step in range(64)], LOW_GAINS[:1064]
    )


@given(st.floats(0.05, 1.0), st.integers(0, 40))
def test_a_residual_of_next_to_nothing_may_grow_as_it_likes(steepness, begins):
    """As it does while training begins: the gain stays near 1 for some steps and then falls to what the ratio gives."""
    gains = [1 / (1 + exp(min(50.0, steepness * (step - begins)))) * 0.95 + 0.05 for step in range(200)]
    norms = [(1 - gain) ** 0.5 for gain in gains]
    for end in range(1, len(norms)):
        assert guards.growing_residual(norms[:end], gains[:end]) is None


def test_it_did_so_in_a_real_run():
    gains = [1, 0.999, 0.999, 0.999, 0.999, 0.998, 0.994, 0.99, 0.983, 0.976, 0.956, 0.946, 0.91, 0.82, 0.815, 0.807]
    norms = [(1 - gain) ** 0.5 for gain in gains]
    assert guards.growing_residual(norms, gains) is None
    assert "residual grew" in guards.growing_residual(norms, LOW_GAINS[: len(norms)]), "had it been filled before"


def steps_of(*step_times, computing=0.1):
    return [StepReport(1, dense_plan(), seconds, computing, 0.0, 0.0, 0, 0, 1.0, 0.0, True) for seconds in step_times]


def reason_of(alarm):
    assert alarm is not None
    return alarm.reason


def test_slower_than_dense_needs_several_steps_and_a_margin():
    assert guards.slower_than_dense(steps_of(*[1.2] * 4), DENSE) is None
    assert guards.slower_than_dense(steps_of(1.2, 9.0), DENSE) is None
    assert guards.slower_than_dense(steps_of(*[1.04] * 10), DENSE) is None
    assert "dense needs 1.000 s" in reason_of(guards.slower_than_dense(steps_of(*[1.2] * 10), DENSE))


def test_much_slower_than_dense_shows_in_two_steps():
    assert "dense needs 1.000 s" in reason_of(guards.slower_than_dense(steps_of(9.0, 8.0), DENSE))


def test_other_work_on_the_machine_slows_down_dense_too():
    """Computing takes 0.3 s instead of the 0.1 s that dense was predicted with."""
    assert guards.slower_than_dense(steps_of(*[1.2] * 10, computing=0.3), DENSE) is None
    assert "dense needs 1.200 s" in reason_of(guards.slower_than_dense(steps_of(*[1.3] * 10, computing=0.3), DENSE))


def test_a_plan_that_was_fast_until_a_moment_ago_is_not_left_for_dense():
    """Its network has changed, and dense would suffer far more: first the monitor must have its say."""
    fast, slow = [0.2] * 20, [3.0] * 3
    assert guards.slower_than_dense(steps_of(*fast, *slow), DENSE) is None
    assert guards.slower_than_dense(steps_of(*fast, *[3.0] * 5), DENSE) is not None, "it had its say"


def test_a_plan_that_fails_whatever_the_network_is_told_from_one_that_is_too_slow_on_this_one():
    calm, slow = guards.ResidualWatch(), steps_of(*[9.0] * 10)
    assert guards.alarm(0, calm, steps_of(*[0.5] * 10), DENSE) is None
    assert guards.alarm(2, calm, slow, DENSE).step_seconds is None
    assert guards.alarm(0, calm, slow, DENSE).step_seconds == 9.0
    assert guards.alarm(0, calm, slow, None) is None, "without a network nobody knows what dense takes"


def test_a_residual_is_watched_step_by_step():
    residual = guards.ResidualWatch()
    for step in range(40):
        residual.observe(1.2**step, 0.1)
    assert "residual grew" in guards.alarm(0, residual, [0.5] * 10, DENSE).reason
