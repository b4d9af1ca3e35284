"""How a change of plan turned out, and when it is reason to choose anew."""

from __future__ import annotations

import pytest
from trimtab.control.decision import Decision, Inputs
from trimtab.control.monitors.recent_steps import RecentSteps
from trimtab.control.plan_outcome import PlanOutcome
from trimtab.control.types import StepReport
from trimtab.plan.plan import Plan

BEFORE, AFTER = Plan(0.01, "all-gather", version=1), Plan(0.04, "artopk-star-ring", version=2)
EXCHANGE = 0.02


def change(predicted_previous: float, predicted: float) -> Decision:
    inputs = Inputs(1, 0.001, 1e8, 0.5, 0.05, 0.6, "SGD (sgd)")
    return Decision(7, 10, 1.0, "warm-up", inputs, BEFORE, AFTER, predicted_previous, predicted, (), "because")


def report(plan: Plan, seconds: float, exchange: float = EXCHANGE) -> StepReport:
    return StepReport(
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


def ran(*runs: tuple[Plan, int, float, float]) -> RecentSteps:
    """So many steps under each plan, after the first, that took so long, and their exchange."""
    steps = RecentSteps()
    for plan, count, seconds, exchange in runs:
        for _ in range(count + 1):
            steps.add(report(plan, seconds, exchange), end=1.0)
    return steps


def pending(steps: RecentSteps, predicted_previous: float = 0.12, predicted: float = 0.11) -> PlanOutcome:
    outcome = PlanOutcome(steps)
    outcome.begin(change(predicted_previous, predicted), lambda plan: EXCHANGE)
    return outcome


@pytest.mark.parametrize(
    ("previous", "took", "predicted", "underperforms"),
    [
        (0.12, 0.13, 0.11, True),
        (0.12, 0.115, 0.11, False),
        (None, 0.13, 0.11, False),  # the previous plan never ran on this network
        (0.12, 0.13, 0.14, False),  # nobody promised a shorter step
    ],
)
def test_a_step_that_was_to_be_shorter_and_is_longer_underperforms(previous, took, predicted, underperforms):
    before = [] if previous is None else [(BEFORE, 10, previous, EXCHANGE)]
    outcome = pending(ran(*before, (AFTER, 10, took, EXCHANGE)), predicted=predicted)
    measured, worse = outcome.review(20, 2.0)
    assert (measured.id, worse is not None) == (7, underperforms)
    assert (measured.seconds, measured.previous_seconds) == pytest.approx((took, previous))


def test_it_is_said_once_on_a_network():
    steps = ran((BEFORE, 10, 0.12, EXCHANGE), (AFTER, 10, 0.13, EXCHANGE))
    outcome = pending(steps)
    assert outcome.review(20, 2.0)[1]
    assert outcome.review(21, 2.0) == (None, None), "nothing is pending"
    outcome.begin(change(0.12, 0.11), lambda plan: EXCHANGE)
    assert outcome.review(40, 4.0)[1] is None
    assert pending(steps).review(60, 6.0)[1], "another network has an outcome of its own"


def test_a_change_that_ran_for_two_steps_is_not_measured():
    outcome = pending(ran((BEFORE, 10, 0.12, EXCHANGE), (AFTER, 2, 0.13, EXCHANGE)))
    assert outcome.close(20, 2.0) is None


@pytest.mark.parametrize(
    ("exchange", "previous"),
    [
        (0.05, 0.7 / 3),  # of a step of 0.3 s: noise, and leaving it out would leave out the slow ones
        (0.2, 0.1),  # of another network
    ],
)
def test_what_a_plan_took_before_is_told_by_the_steps_on_this_network_slow_ones_too(exchange, previous):
    steps = ran((BEFORE, 2, 0.1, EXCHANGE), (BEFORE, 3, 0.3, exchange), (AFTER, 3, 0.15, EXCHANGE))
    assert pending(steps).close(20, 2.0).previous_seconds == pytest.approx(previous)
