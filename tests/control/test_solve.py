"""What may be chosen, and that enumeration and NSGA-II find the same in it."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise, product
from math import log10

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from pymoo.indicators.hv import HV
from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.planning import FusionPlanning
from trimtab.control.search.knee import knee, log_speedup
from trimtab.control.search.pareto import front, objectives
from trimtab.control.search.search import MOST_EVALUATIONS, solve
from trimtab.control.search.space import Space, ratio_grid
from trimtab.control.types import ControllerSettings, ModelFacts
from trimtab.plan.plan import Plan, dense_plan
from trimtab_api.catalogue import DEFAULT_COLLECTIVES, choices

GIGABIT = 1e9 / 8


def fixed(elements):
    """Buffers of so many elements."""
    return f"fixed:bytes={4 * elements}"


def problem(num_ranks, num_elements, alpha, gigabits, compute, collectives=DEFAULT_COLLECTIVES):
    """A space, and the evaluator of its plans."""
    size = num_elements // 8
    named = choices(collectives, num_ranks, 1)
    settings = ControllerSettings(collectives=named, fusions=("single", fixed(3 * size)))
    facts, beta = ModelFacts(8 * size, (size,) * 8, num_ranks), 1 / (gigabits * GIGABIT)
    predictor = Predictor(facts, compute)
    planning = FusionPlanning(predictor, facts, settings.candidate_ratios)
    planning.renew(alpha, beta)
    return Space.of(settings), PlanEvaluator(
        lambda plan: predictor.predict(plan, alpha, beta), planning, settings, dense_plan(), facts.optimizer
    )


def by_nsga(space, evaluator, seed):
    return solve(space, evaluator.predict, seed, most_evaluations=0)


# The space ----------------------------------------------------------------------------------------------


def test_by_default_every_third_ratio_by_every_collective_and_format_may_be_chosen_and_all_are_looked_at():
    space = Space.of(ControllerSettings())
    assert len(space) == 61 * len(DEFAULT_COLLECTIVES) * len(space.wire) <= MOST_EVALUATIONS
    assert len({tuple(values.items()) for values in space}) == len(space)


@given(st.floats(1e-5, 0.99), st.floats(1e-5, 0.99))
def test_ratios_lie_between_the_bounds_a_tenth_apart_at_most(a, b):
    least, most = sorted((a, b))
    grid = ratio_grid(least, most)
    assert (grid[0], grid[-1]) == (least, most)
    assert all(low < high <= low * 1.1000001 for low, high in pairwise(grid))
    assert len(grid) <= 90 * (log10(most / least) + 1) + 2


def test_a_plan_is_found_by_its_index_on_each_axis():
    two = ("single", fixed(1000))
    space = Space((0.01, 0.1), ("all-gather", "artopk-star-ring"), ("tracked", "topk"), two)
    assert space.at((1, 0, 1, 1, 0, 0, 0)) == {
        "ratio": 0.1,
        "collective": "all-gather",
        "sparsifier": "topk",
        "fusion": two[1],
        "schedule": "wait-free",
        "source": "gradient",
        "wire": "float32",
    }
    assert len(space) == 16
    by_index = [space.at((*indices, 0, 0, 0)) for indices in product((0, 1), repeat=4)]
    assert by_index == list(space)


def test_an_axis_is_named_after_the_field_of_a_plan_that_it_sets():
    assert set(Space.of(ControllerSettings()).axes) == {field.name for field in fields(Plan)} - {"version", "timetable"}


# Both ways of looking at it -----------------------------------------------------------------------------


@settings(max_examples=examples(8), deadline=None)
@given(
    num_ranks=st.sampled_from([2, 4, 8, 16]),
    num_elements=st.integers(10**5, 10**8),
    alpha=st.floats(1e-4, 50e-3),
    gigabits=st.floats(0.05, 10),
    compute=st.floats(0.01, 1),
    seed=st.integers(0, 1000),
)
def test_nsga_finds_the_knee_that_enumeration_finds(num_ranks, num_elements, alpha, gigabits, compute, seed):
    space, evaluator = problem(num_ranks, num_elements, alpha, gigabits, compute)
    dense, everything = evaluator.dense, solve(space, evaluator.predict, seed)
    assert len(everything) == len(space)
    found = by_nsga(space, evaluator, seed)
    assert len(found) < len(space)
    best, reached = (log_speedup(knee(front(each), dense, 0.5), dense, 0.5) for each in (everything, found))
    assert best >= reached, "enumeration is exact"
    assert reached >= best - 0.02


def test_nsga_is_the_same_for_the_same_seed():
    space, evaluator = problem(8, 10**7, 5e-3, 1.0, 0.1)
    assert by_nsga(space, evaluator, 3) == by_nsga(space, evaluator, 3)
    assert by_nsga(space, evaluator, 3) != by_nsga(space, evaluator, 4)


@pytest.mark.parametrize("num_fusions", [5, 20])
def test_a_space_of_more_plans_than_one_decision_may_predict_is_searched(num_fusions):
    space, evaluator = problem(8, 10**7, 5e-3, 1.0, 0.1)
    larger = replace(space, fusion=tuple(fixed(10**6 + n) for n in range(num_fusions)))
    assert len(larger) > MOST_EVALUATIONS
    assert len(solve(larger, evaluator.predict, 0)) <= MOST_EVALUATIONS


# Options of collectives ---------------------------------------------------------------------------------

WITH_OPTIONS = ("spardl:teams=auto", "exdyna:threshold=auto", "all-gather:rounds=auto", "artopk-var-ring:by=auto")


def hypervolume(predictions, dense):
    """What the front dominates of the box between nothing and twice dense, as a share of it."""
    most = [2 * max(value, 1e-9) for value in objectives(dense)]
    most[0] = max(each.compress_seconds for each in predictions) or 1.0
    points = np.array([objectives(each) for each in front(predictions)]) / most
    return float(HV(ref_point=np.ones(3))(points))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nsga_finds_the_front_that_enumeration_finds_among_options_of_collectives(seed):
    space, evaluator = problem(12, 10**7, 5e-3, 1.0, 0.1, WITH_OPTIONS)
    assert {"spardl:teams=3", "exdyna:threshold=paper", "artopk-var-ring:by=gradient"} <= set(space.collective)
    everything = solve(space, evaluator.predict, seed, most_evaluations=len(space))
    assert len(everything) == len(space)
    found = by_nsga(space, evaluator, seed)
    reference = [*everything, *found]
    whole, reached = (
        hypervolume([*each, max(reference, key=lambda one: one.compress_seconds)], evaluator.dense)
        for each in (everything, found)
    )
    assert reached >= 0.95 * whole


def test_more_teams_are_chosen_where_messages_are_dear():
    """In 2^i teams more of them save messages, and send more (SparDL, equation 5)."""
    chosen = {}
    for alpha, gigabits in ((1e-4, 0.1), (50e-3, 10.0)):
        space, evaluator = problem(8, 10**7, alpha, gigabits, 0.1, ("spardl:teams=auto",))
        best = knee(front(solve(space, evaluator.predict, 0)), evaluator.dense, 0.5)
        chosen[alpha] = best.plan.collective
    assert chosen == {1e-4: "spardl:teams=2", 50e-3: "spardl:teams=8"}
