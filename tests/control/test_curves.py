"""Selection times and gains, interpolated in log c between what was measured."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.control.cost_model.interpolation import Curve
from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.types import ModelFacts
from trimtab.plan.plan import FusionPlan, Plan, dense_plan


def plan(ratio, collective="all-gather"):
    return Plan(ratio=ratio, collective=collective)


def square_root_curve(max_age_steps=1000):
    return Curve(lambda at: at.ratio**0.5, max_age_steps)


def test_the_prior_stands_until_something_is_measured():
    assert square_root_curve()(plan(0.01)) == pytest.approx(0.1)


def test_a_measured_point_is_returned_and_shifts_the_rest():
    curve = square_root_curve()
    curve.observe(plan(0.01), 0.3, step=1)
    assert curve(plan(0.01)) == pytest.approx(0.3)
    assert curve(plan(0.0001)) == pytest.approx(0.03)


@given(low=st.floats(0.01, 1), high=st.floats(0.01, 1))
def test_between_two_measured_points_the_value_lies_between_their_shifts(low, high):
    curve = square_root_curve()
    curve.observe(plan(0.001), low, step=1)
    curve.observe(plan(0.1), high, step=1)
    shift = curve(plan(0.01)) / 0.01**0.5
    ends = sorted((low / 0.001**0.5, high / 0.1**0.5))
    assert ends[0] * (1 - 1e-9) <= shift <= ends[1] * (1 + 1e-9)
    assert shift == pytest.approx((ends[0] * ends[1]) ** 0.5)


def test_a_scheme_never_run_takes_its_familys_shift_first():
    curve = square_root_curve()
    curve.observe(plan(0.01, "all-gather"), 0.8, step=1)
    assert curve(plan(0.01, "artopk-star-ring")) == pytest.approx(0.8)
    curve.observe(plan(0.01, "artopk-star-tree"), 0.4, step=1)
    assert curve(plan(0.01, "artopk-star-ring")) == pytest.approx(0.4)


def test_what_has_aged_gives_way_to_what_is_new_but_is_better_than_nothing():
    curve = square_root_curve(max_age_steps=100)
    curve.observe(plan(0.001), 0.5, step=1)
    assert curve(plan(0.001)) == pytest.approx(0.5)
    assert not curve.knows(plan(0.001), step=5000)
    curve.observe(plan(0.1), 0.1**0.5, step=5000)
    assert curve(plan(0.001)) == pytest.approx(0.001**0.5)


def test_dense_has_no_curve():
    curve = square_root_curve()
    curve.observe(dense_plan(), 0.5, step=1)
    assert curve.state_dict() == {}


def test_state_survives_as_json():
    curve, restored = square_root_curve(), square_root_curve()
    curve.observe(plan(0.01), 0.3, step=7)
    restored.load_state_dict(json.loads(json.dumps(curve.state_dict())))
    assert restored(plan(0.02)) == curve(plan(0.02))


@pytest.mark.parametrize(
    ("collective", "milliseconds"),
    [
        ("all-gather", {0.001: 25.5, 0.004: 32, 0.011: 40, 0.033: 52, 0.1: 62}),
        ("artopk-star-ring", {0.001: 21.5, 0.004: 23.5, 0.011: 26, 0.033: 30, 0.1: 36}),
    ],
)
def test_compression_measured_at_one_ratio_tells_that_of_the_others(collective, milliseconds):
    """As benchmarks/results/2026-11-30/tables-compression.json has them."""
    plans = {ratio: Plan(ratio=ratio, collective=collective) for ratio in milliseconds}
    predictor = Predictor(ModelFacts(8_400_000, (8_400_000,), 4))
    predictor.compress_times.observe(plans[0.004], milliseconds[0.004] * 1e-3, step=0)
    for ratio, measured in milliseconds.items():
        assert predictor.compress_times(plans[ratio]) == pytest.approx(measured * 1e-3, rel=0.3), ratio


def test_what_many_buffers_cost_is_not_charged_to_one():
    """10 ms of elements and 3 ms a buffer."""
    facts = ModelFacts(6_200, (100,) * 62, 4)
    times = Predictor(facts).compress_times
    equal = {
        count: Plan(0.01, "all-gather", fusion=FusionPlan(tuple(6_200 * i // count for i in range(count))))
        for count in (1, 8, 62)
    }
    for step, count in enumerate((1, 62)):
        times.observe(equal[count], 10e-3 + 3e-3 * count, step)
    assert times.per_buffer == pytest.approx(3e-3, rel=0.1)
    for count, plan in equal.items():
        assert times(plan) == pytest.approx(10e-3 + 3e-3 * count, rel=0.25)
    restored = Predictor(facts).compress_times
    restored.load_state_dict(json.loads(json.dumps(times.state_dict())))
    assert restored(equal[8]) == times(equal[8])
    of_buffer = times.of_buffer(equal[8], facts.num_elements)
    assert 8 * of_buffer(facts.num_elements / 8) == pytest.approx(times(equal[8]))
