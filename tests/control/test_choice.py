"""From predictions to one plan: the front, NSGA-II against enumeration, the knee, candidates, the timeline."""

from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trimtab.control import overlap
from trimtab.control.candidates import within_budget, worth_a_trial
from trimtab.control.choice import choose
from trimtab.control.decision import Prediction
from trimtab.control.knee import knee, log_speedup
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.predict import Predictor
from trimtab.control.reason import reason_to_keep
from trimtab.control.solve import Space, front, objectives, solve
from trimtab.control.staleness import relative_steps
from trimtab.control.types import ControllerSettings, ModelFacts, OptimizerFamily
from trimtab.plan import SPARSE_COLLECTIVES, FusionPlan, Plan, dense_plan

GIGABIT = 1e9 / 8
SGD, ADAM = OptimizerFamily("SGD", "sgd"), OptimizerFamily("AdamW", "adam")
FACTS = ModelFacts(1000, (1000,), 4, SGD)


def prediction(step_seconds=0.2, gain=0.5, compress=0.01, sync=0.1, ratio=0.01):
    plan = Plan(ratio=ratio, collective="all-gather")
    return Prediction(plan, compress, sync, gain, relative_steps(plan, gain, FACTS), step_seconds)


DENSE = Prediction(dense_plan(), 0.0, 0.9, 1.0, 1.0, 1.0)

# The front ----------------------------------------------------------------------------------------------

some_predictions = st.lists(
    st.builds(prediction, compress=st.floats(0, 1), sync=st.floats(0, 1), gain=st.floats(0.01, 1)),
    min_size=1,
    max_size=12,
)


@given(some_predictions)
def test_the_front_is_what_nothing_dominates(predictions):
    survivors = front(predictions)

    def dominates(a, b):
        pairs = list(zip(objectives(a), objectives(b), strict=True))
        return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)

    assert survivors
    assert not any(dominates(a, b) for a in predictions for b in survivors)
    kept = {objectives(survivor) for survivor in survivors}
    assert all(objectives(p) in kept or any(dominates(s, p) for s in survivors) for p in predictions)


# NSGA-II ------------------------------------------------------------------------------------------------


def problem(num_ranks, num_elements, alpha, gigabits, compute):
    sizes = tuple(num_elements // 8 for _ in range(8))
    predictor = Predictor(ModelFacts(sum(sizes), sizes, num_ranks), compute)
    space = Space(0.001, 0.1, SPARSE_COLLECTIVES, (FusionPlan(), FusionPlan((0, 3 * sizes[0], 6 * sizes[0]))))

    def evaluate(plan):
        return predictor.predict(plan, alpha, 1 / (gigabits * GIGABIT))

    return space, evaluate


def enumerate_all(space, evaluate, steps=160):
    span = log(space.max_ratio / space.min_ratio)
    return [
        evaluate(space.plan(log(space.min_ratio) + span * i / steps, collective, fusion))
        for i in range(steps + 1)
        for collective in range(len(space.collectives))
        for fusion in range(len(space.fusions))
    ]


@settings(max_examples=8, deadline=None)
@given(
    num_ranks=st.sampled_from([2, 4, 8, 16]),
    num_elements=st.integers(10**5, 10**8),
    alpha=st.floats(1e-4, 50e-3),
    gigabits=st.floats(0.05, 10),
    compute=st.floats(0.01, 1),
    seed=st.integers(0, 1000),
)
def test_nsga_finds_the_knee_that_enumeration_finds(num_ranks, num_elements, alpha, gigabits, compute, seed):
    space, evaluate = problem(num_ranks, num_elements, alpha, gigabits, compute)
    dense = evaluate(dense_plan())
    found = knee(solve(space, evaluate, seed), dense, 0.5)
    best = knee(enumerate_all(space, evaluate), dense, 0.5)
    assert log_speedup(found, dense, 0.5) >= log_speedup(best, dense, 0.5) - 0.02


def test_nsga_is_the_same_for_the_same_seed():
    space, evaluate = problem(8, 10**7, 5e-3, 1.0, 0.1)
    assert solve(space, evaluate, seed=3) == solve(space, evaluate, seed=3)


# The knee -----------------------------------------------------------------------------------------------


def test_half_a_weight_each_minimises_the_time_to_target():
    fast, thorough = prediction(step_seconds=0.10, gain=0.02), prediction(step_seconds=0.13, gain=0.5)
    chosen = knee([fast, thorough], DENSE, 0.5)
    assert chosen is min((fast, thorough), key=lambda p: p.step_seconds * p.relative_steps)


def test_the_speed_weight_leads_from_gain_to_speed():
    fast, thorough = prediction(step_seconds=0.10, gain=0.02), prediction(step_seconds=0.5, gain=0.9)
    assert knee([fast, thorough], DENSE, 1.0) is fast
    assert knee([fast, thorough], DENSE, 0.0) is DENSE


def test_what_is_no_faster_than_dense_is_dropped_and_dense_is_a_success():
    assert knee([prediction(step_seconds=1.0), prediction(step_seconds=3.0)], DENSE, 0.5) is DENSE


def test_free_gain_is_taken():
    """Where compute hides the exchange of a larger ratio, the larger ratio wins."""
    small, large = prediction(step_seconds=0.200, gain=0.05), prediction(step_seconds=0.201, gain=0.5)
    assert knee([small, large], DENSE, 0.5) is large


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_less_gain_means_more_steps(a, b):
    low, high = sorted((a, b))
    plan = Plan(0.01, "all-gather")
    steps = [
        relative_steps(plan, low, FACTS),
        relative_steps(plan, high, FACTS),
        relative_steps(dense_plan(), 1.0, FACTS),
    ]
    assert steps[0] >= steps[1] >= steps[2] == 1.0


@given(st.floats(0.001, 0.999))
def test_indices_that_one_rank_selected_for_all_cost_more_steps_at_the_same_gain(gain):
    own, shared = (relative_steps(Plan(0.01, name), gain, FACTS) for name in ("all-gather", "artopk-star-ring"))
    assert shared > own


# Reasons ------------------------------------------------------------------------------------------------


def test_a_reason_to_stay_says_what_a_change_promised_and_what_it_would_have_to():
    present, faster, slower = (
        prediction(ratio=0.01),
        prediction(ratio=0.004, step_seconds=0.19),
        prediction(0.25, ratio=0.03),
    )
    assert reason_to_keep(present, faster, 0.03, 0.05, True).endswith(
        "the target 3.0% sooner, where a change must promise 5.1%"
    )
    for_gain = reason_to_keep(present, slower, 0.1, 0.15, False)
    assert for_gain.endswith("the target 10.5% sooner, where a change for the gain's sake must promise 16.2%")
    assert (
        reason_to_keep(present, faster, -0.01, 0.05, True) == "nothing is predicted to be better than 0.01/all-gather"
    )


@pytest.mark.parametrize(("step_seconds", "is_worth_it"), [(0.08, True), (0.097, False), (0.11, False)])
def test_a_tenth_sooner_is_worth_a_change_only_where_the_step_is_clearly_shorter(step_seconds, is_worth_it):
    """Else it would be for the gain, which is known less well, and no measurement could tell it from noise."""

    def evaluate(plan):
        if plan.is_dense:
            return DENSE
        if plan.collective == "all-gather":
            return Prediction(plan, 0.01, 0.04, 0.5, 1.2, 0.1)
        return Prediction(plan, 0.01, step_seconds - 0.06, 0.6, 1.2 * 0.1 / step_seconds * exp(-0.1), step_seconds)

    wanted = ControllerSettings(collectives=("all-gather", "artopk-star-tree"), min_ratio=0.01, max_ratio=0.01)
    present = Plan(0.01, "all-gather", wanted.sparsifier, wanted.fusions[0])
    choice = choose(PlanEvaluator(evaluate, wanted, present, SGD), banned=(), seed=1)
    assert (choice.chosen.plan.collective == "artopk-star-tree") is is_worth_it


# Candidates ---------------------------------------------------------------------------------------------


def test_no_candidate_is_slower_than_dense_or_known_or_hopeless():
    slow, known = prediction(step_seconds=1.5), prediction(step_seconds=0.2, ratio=0.02)
    good, hopeless = prediction(step_seconds=0.21, ratio=0.01), prediction(step_seconds=0.9, ratio=0.1)
    worth = worth_a_trial(
        [slow, hopeless, good, known], DENSE, lambda p: log_speedup(p, DENSE, 0.5), lambda plan: plan.ratio == 0.02
    )
    assert worth == [good]
    assert worth_a_trial([slow], DENSE, lambda p: log_speedup(p, DENSE, 0.5), lambda plan: False) == []


@given(st.lists(st.floats(0.01, 5), max_size=6), st.floats(-1, 60))
def test_trials_fit_their_budget_shortest_first(step_times, budget):
    predictions = [prediction(step_seconds=seconds) for seconds in sorted(step_times)]
    chosen, predicted = within_budget(predictions, iterations=10, budget_seconds=budget)
    assert chosen == predictions[: len(chosen)]
    assert predicted == pytest.approx(sum(11 * p.step_seconds for p in chosen))
    assert predicted <= max(budget, 0)
    if len(chosen) < len(predictions):
        assert sum(11 * p.step_seconds for p in predictions[: len(chosen) + 1]) > budget - 1e-9


# The timeline -------------------------------------------------------------------------------------------


def test_one_buffer_hides_nothing_and_many_hide_what_fits():
    assert overlap.step_seconds(0.3, [1.0], [0.2]) == pytest.approx(0.5)
    assert overlap.step_seconds(0.3, [0.5, 0.5], [0.1, 0.1]) == pytest.approx(0.4)


@given(
    compute=st.floats(0.001, 10),
    exchanges=st.lists(st.floats(0, 10), min_size=1, max_size=8),
)
def test_a_step_takes_at_least_its_parts_and_at_most_their_sum(compute, exchanges):
    shares = [1 / len(exchanges)] * len(exchanges)
    seconds = overlap.step_seconds(compute, shares, exchanges)
    assert seconds >= max(compute, sum(exchanges)) - 1e-9
    assert seconds <= compute + sum(exchanges) + 1e-9
