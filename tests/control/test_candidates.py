"""Which trials run before a gain that has moved is acted upon."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import evaluator_of
from trimtab.control.decision import Prediction
from trimtab.control.search.candidates import trials_to_run, within_budget, worth_a_trial
from trimtab.control.search.knee import log_speedup
from trimtab.control.types import ControllerSettings
from trimtab.plan.plan import Plan, dense_plan

SETTINGS = ControllerSettings(candidate_ratios=(0.1, 0.01), collectives=("all-gather",), trial_iterations=10)


def evaluate(plan: Plan) -> Prediction:
    """Dense's steps take a second, others less the less they send, and all need as many."""
    return Prediction(plan, 0.0, 0.0, 0.5, 1.0, 1.0 if plan.is_dense else 0.4 + plan.ratio)


DENSE = evaluate(dense_plan())
EVALUATOR = evaluator_of(evaluate, SETTINGS, Plan(0.01, "all-gather"))


def predicted(step_seconds=0.2, ratio=0.01):
    """A plan whose gain makes up for its ratio: what its step takes decides."""
    return Prediction(Plan(ratio, "all-gather"), 0.01, 0.1, 0.5, 1.0, step_seconds)


def trials(budget=100.0, steps_left=100, known=()):
    return trials_to_run(EVALUATOR, lambda plan: plan.ratio in known, steps_left, budget)


def test_candidates_run_shortest_first_for_as_many_iterations_as_the_user_said():
    found, predicted_seconds = trials()
    assert [plan.ratio for plan in found.plans] == [0.01, 0.1]
    assert found.iterations == 10
    assert predicted_seconds == pytest.approx(11 * (0.41 + 0.5))


def test_only_what_fits_the_budget_runs():
    found, predicted_seconds = trials(budget=5.0)
    assert [plan.ratio for plan in found.plans] == [0.01]
    assert predicted_seconds <= 5.0
    assert trials(budget=4.0) is None


def test_a_trial_ends_with_the_epoch_and_three_iterations_are_the_fewest():
    assert trials(steps_left=4)[0].iterations == 4
    assert trials(steps_left=2) is None


def test_what_is_known_is_not_tried_again():
    assert [plan.ratio for plan in trials(known=(0.01,))[0].plans] == [0.1]
    assert trials(known=(0.01, 0.1)) is None


def test_no_candidate_is_slower_than_dense_or_known_or_hopeless():
    slow, known = predicted(step_seconds=1.5), predicted(step_seconds=0.2, ratio=0.02)
    good, hopeless = predicted(step_seconds=0.21, ratio=0.01), predicted(step_seconds=0.9, ratio=0.1)
    worth = worth_a_trial(
        [slow, hopeless, good, known], DENSE, lambda p: log_speedup(p, DENSE, 0.5), lambda plan: plan.ratio == 0.02
    )
    assert worth == [good]
    assert worth_a_trial([slow], DENSE, lambda p: log_speedup(p, DENSE, 0.5), lambda plan: False) == []


@given(st.lists(st.floats(0.01, 5), max_size=6), st.floats(-1, 60))
def test_trials_fit_their_budget_shortest_first(step_times, budget):
    predictions = [predicted(step_seconds=seconds) for seconds in sorted(step_times)]
    chosen, seconds = within_budget(predictions, iterations=10, budget_seconds=budget)
    assert chosen == predictions[: len(chosen)]
    assert seconds == pytest.approx(sum(11 * p.step_seconds for p in chosen))
    assert seconds <= max(budget, 0)
    if len(chosen) < len(predictions):
        assert sum(11 * p.step_seconds for p in predictions[: len(chosen) + 1]) > budget - 1e-9
