"""How a change of plan turned out, and when it is reason to choose anew."""

from __future__ import annotations

import pytest
from trimtab.control.aftermath import Aftermath, RecentSteps, Timed
from trimtab.control.decision import Decision, Inputs
from trimtab.control.types import StepReport
from trimtab.plan import Plan

BEFORE, AFTER = Plan(0.01, "all-gather", version=1), Plan(0.04, "artopk-star-ring", version=2)
EXCHANGE = 0.02


def change(predicted_left: float, predicted: float) -> Decision:
    inputs = Inputs(1, 0.001, 1e8, 0.5, 0.05, 0.6)
    return Decision(7, 10, 1.0, "warm-up", inputs, BEFORE, AFTER, predicted_left, predicted, (), "because")


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


def aftermath(*, left: float | None, took: float, predicted_left: float = 0.12, predicted: float = 0.11) -> Aftermath:
    steps = RecentSteps()
    for _ in range(10):
        if left is not None:
            steps.add(step(BEFORE, left))
        steps.add(step(AFTER, took))
    pending = Aftermath(steps)
    pending.begin(change(predicted_left, predicted), lambda plan: EXCHANGE)
    return pending


@pytest.mark.parametrize(
    ("known", "disappoints"),
    [
        ({"left": 0.12, "took": 0.13}, True),
        ({"left": 0.12, "took": 0.115}, False),
        ({"left": None, "took": 0.13}, False),  # never ran on this network
        ({"left": 0.12, "took": 0.13, "predicted": 0.14}, False),  # nobody promised a shorter step
    ],
)
def test_a_shorter_step_that_is_longer_disappoints(known, disappoints):
    measured, says = aftermath(**known).disappoints(20, 2.0)
    assert (measured.id, measured.seconds, says) == (7, known["took"], disappoints)


def test_it_is_said_once_on_a_network():
    pending = aftermath(left=0.12, took=0.13)
    assert pending.disappoints(20, 2.0)[1]
    assert pending.disappoints(21, 2.0) == (None, False)
    for again in (False, True):
        pending.begin(change(0.12, 0.11), lambda plan: EXCHANGE)
        assert pending.disappoints(40, 4.0)[1] is again
        pending.begin_anew()


@pytest.mark.parametrize(
    ("exchange", "left"),
    [
        (0.05, 0.3),  # of a step of 0.3 s: noise, and leaving it out would leave out the slow ones
        (0.2, 0.1),  # of another network
    ],
)
def test_what_a_plan_took_before_is_told_by_the_steps_on_this_network_slow_ones_too(exchange, left):
    steps = RecentSteps()
    for _ in range(2):
        steps.add(step(BEFORE, 0.1))
    for _ in range(3):
        steps.add(step(BEFORE, 0.3, exchange))
        steps.add(step(AFTER, 0.15))
    pending = Aftermath(steps)
    pending.begin(change(0.12, 0.11), lambda plan: EXCHANGE)
    assert pending.disappoints(20, 2.0)[0].left_seconds == left
