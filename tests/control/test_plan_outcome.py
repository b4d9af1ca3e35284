"""How a change of plan turned out, and when it is reason to choose anew."""

from __future__ import annotations

import pytest
from trimtab.control.decision import Decision, Inputs
from trimtab.control.plan_outcome import PlanOutcome, RecentSteps, Timed
from trimtab.control.types import StepReport
from trimtab.plan import Plan

BEFORE, AFTER = Plan(0.01, "all-gather", version=1), Plan(0.04, "artopk-star-ring", version=2)
EXCHANGE = 0.02


def change(predicted_previous: float, predicted: float) -> Decision:
    inputs = Inputs(1, 0.001, 1e8, 0.5, 0.05, 0.6)
    return Decision(7, 10, 1.0, "warm-up", inputs, BEFORE, AFTER, predicted_previous, predicted, (), "because")


def step(plan: Plan, seconds: float, exchange: float = EXCHANGE) -> Timed:
    report = StepReport(
        step=1,
        plan=plan,
        step_seconds=seconds,
        compute_seconds=0.05,
        compress_seconds=0.01,
        collective_seconds=exchange,
        num_bytes=1000,
        num_messages=6,
        gain=0.5,
        residual_norm=1.0,
        finite=True,
    )
    return Timed(report, 1.0)


def outcome(
    *, previous: float | None, took: float, predicted_previous: float = 0.12, predicted: float = 0.11
) -> PlanOutcome:
    steps = RecentSteps()
    for _ in range(10):
        if previous is not None:
            steps.add(step(BEFORE, previous))
        steps.add(step(AFTER, took))
    pending = PlanOutcome(steps)
    pending.begin(change(predicted_previous, predicted), lambda plan: EXCHANGE)
    return pending


@pytest.mark.parametrize(
    ("known", "underperforms"),
    [
        ({"previous": 0.12, "took": 0.13}, True),
        ({"previous": 0.12, "took": 0.115}, False),
        ({"previous": None, "took": 0.13}, False),  # never ran on this network
        ({"previous": 0.12, "took": 0.13, "predicted": 0.14}, False),  # nobody promised a shorter step
    ],
)
def test_a_shorter_step_that_is_longer_underperforms(known, underperforms):
    measured, says = outcome(**known).underperforms(20, 2.0)
    assert (measured.id, measured.seconds, says) == (7, known["took"], underperforms)


def test_it_is_said_once_on_a_network():
    pending = outcome(previous=0.12, took=0.13)
    assert pending.underperforms(20, 2.0)[1]
    assert pending.underperforms(21, 2.0) == (None, False)
    for again in (False, True):
        pending.begin(change(0.12, 0.11), lambda plan: EXCHANGE)
        assert pending.underperforms(40, 4.0)[1] is again
        pending.begin_anew()


@pytest.mark.parametrize(
    ("exchange", "previous"),
    [
        (0.05, 0.3),  # of a step of 0.3 s: noise, and leaving it out would leave out the slow ones
        (0.2, 0.1),  # of another network
    ],
)
def test_what_a_plan_took_before_is_told_by_the_steps_on_this_network_slow_ones_too(exchange, previous):
    steps = RecentSteps()
    for _ in range(2):
        steps.add(step(BEFORE, 0.1))
    for _ in range(3):
        steps.add(step(BEFORE, 0.3, exchange))
        steps.add(step(AFTER, 0.15))
    pending = PlanOutcome(steps)
    pending.begin(change(0.12, 0.11), lambda plan: EXCHANGE)
    assert pending.underperforms(20, 2.0)[0].previous_seconds == previous
