"""The mean of times among which some are pauses."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.control.cost_model.clipped_mean import clipped_mean
from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.types import ModelFacts, StepReport
from trimtab.plan.plan import Plan

TIMES = st.lists(st.floats(0.01, 0.03), min_size=2, max_size=40)


@given(TIMES)
def test_of_times_that_are_alike_it_is_the_mean(times):
    assert clipped_mean(times) == pytest.approx(fmean(times))


@given(TIMES, st.floats(0.0, 1e6))
def test_one_pause_moves_it_little_however_long(times, pause):
    without = clipped_mean(times)
    assert clipped_mean([*times, pause]) <= without + 4 * 0.03 / len(times)


def computing(num_local, times):
    """What a controller takes computing to be that hears of ``times`` in rounds of so many steps."""
    predictor = Predictor(ModelFacts(1000, (1000,), 4))
    source = f"update:steps={num_local}" if num_local else "gradient"
    plan = Plan(0.01, "all-gather", source=source)
    for begin in range(0, len(times), max(1, num_local)):
        seconds = fmean(times[begin : begin + max(1, num_local)])
        report = StepReport(begin, plan, seconds + 0.01, seconds, 0.0, 0.01, 0, 0, 0.3, 0.0, finite=True)
        predictor.observe_step(report, 1e-3, 1e8)
    return predictor.compute_seconds


def test_a_script_that_evaluates_every_fifth_step_computes_as_long_whatever_is_told_of_it():
    """A judge of sources compares them by it, and trains under one at a time."""
    times = [0.035 + 0.075 * (step % 5 == 4) for step in range(400)]
    assert computing(0, times) == pytest.approx(0.05, rel=0.01)
    assert computing(4, times) == pytest.approx(0.05, rel=0.01)
    assert computing(16, times) == pytest.approx(0.05, rel=0.05)
