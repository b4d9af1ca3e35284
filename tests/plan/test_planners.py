"""What every planner keeps, and what each of them promises by the times that it is given."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from trimtab.papers.safusion.safusion import adaptive_begins, filling, first_buffer, without_tail
from trimtab.plan.fusion import plan_of
from trimtab.plan.fusion.base import BufferCosts
from trimtab.plan.fusion.best_cuts import best_begins
from trimtab.plan.fusion.run_times import RunTimes
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import Profile
from trimtab_api.catalogue import planners
from trimtab_api.catalogue.fusion import MOST_BUFFERS
from trimtab_api.errors import UserError

#: Every planner that needs no cuts from its user, and SAFusion's options.
PLANNERS = (
    *(row.name for row in planners.rows() if row.name in planners.built_in and row.name not in ("cuts", "equal")),
    "safusion:tail=paper",
    "safusion:workers=inter",
    "safusion:workers=inter:buffers=3",
)


@st.composite
def steps(draw, most_tensors=40):
    """A model's tensors, a profile or none, and what buffers cost: linear, with a startup of each."""
    sizes = draw(st.lists(st.integers(1, 3_000_000), min_size=1, max_size=most_tensors))
    startups, per_element = st.floats(0, 1e-2), st.floats(0, 1e-8)
    seconds = [*draw(st.tuples(startups, per_element, startups, per_element))]
    costs = BufferCosts(lambda n: seconds[0] / 100 + n * seconds[1], lambda n: seconds[2] + n * seconds[3])
    profile = None
    if draw(st.booleans()):
        backward = draw(st.lists(st.floats(1e-6, 1e-2), min_size=len(sizes), max_size=len(sizes)))
        profile = profile_of(backward, draw(st.floats(0, 0.5)))
    return profile, sizes, costs


def profile_of(backward, lead):
    return Profile(9, 5, Plan(0.01, "all-gather"), lead, tuple(backward), (), (), None, None, None)


def seconds_of(plan, times):
    tensor = {offset: index for index, offset in enumerate(times.offsets)}
    return times.step_seconds([tensor[cut] for cut in plan.cuts])


def runs(begins, times):
    return list(pairwise([*begins, len(times)]))


# What all keep --------------------------------------------------------------------------------------------


@given(steps())
def test_cuts_are_legal_the_same_each_time_and_between_tensors_and_none_is_better_than_the_optimal(step):
    profile, sizes, costs = step
    times = RunTimes(profile, sizes, costs)
    best = seconds_of(plan_of("optimal", sizes, profile=profile, costs=costs), times)
    for planner in PLANNERS:
        plan = plan_of(planner, sizes, profile=profile, costs=costs)
        assert plan == FusionPlan(plan.cuts, planner=planner)
        assert plan == plan_of(planner, sizes, profile=profile, costs=costs)
        assert set(plan.cuts) <= set(times.offsets[:-1])
        assert seconds_of(plan, times) >= best * (1 - 1e-9)


@given(st.data(), steps(most_tensors=12))
def test_tensors_without_elements_change_no_cut(data, step):
    profile, sizes, costs = step
    places = data.draw(st.lists(st.integers(0, len(sizes)), min_size=1, max_size=6))  # tensors before each empty one
    with_empty = [size for index in range(len(sizes) + 1) for size in [0] * places.count(index) + sizes[index:][:1]]
    with_times = profile
    if profile is not None:
        seconds = iter(profile.tensor_backward_seconds)
        with_times = profile_of([next(seconds) if size else 0.0 for size in with_empty], profile.lead_seconds)
    for planner in (*PLANNERS, "fixed:bytes=60B", "equal:buffers=3"):
        made = plan_of(planner, with_empty, profile=with_times, costs=costs)
        assert made == plan_of(planner, sizes, profile=profile, costs=costs)


def test_what_the_gradient_of_a_tensor_without_elements_takes_is_not_lost():
    sizes = [0, 1, 0, 0, 1, 0]
    assert cuts_of("mg-wfbp", startup=0.5, sizes=sizes, profile=profile_of([0.1] * 6, 0.0)) == (0,)
    assert cuts_of("mg-wfbp", startup=0.5, sizes=sizes, profile=profile_of([0.2] * 6, 0.0)) == (0, 1)


def test_a_model_without_elements_is_refused():
    with pytest.raises(UserError, match="model: no parameter that requires a gradient has an element"):
        plan_of("none", [0, 0])


@pytest.mark.parametrize("planner", PLANNERS)
def test_five_hundred_tensors_are_planned_and_a_model_of_more_than_there_may_be_buffers_too(planner):
    costs = BufferCosts(lambda n: 1e-5 + n * 1e-9, lambda n: 1e-3 + n * 1e-9)
    sizes = [1 + (tensor * 7919) % 100_000 for tensor in range(500)]
    assert 1 <= len(plan_of(planner, sizes, profile=profile_of([1e-4] * 500, 0.02), costs=costs).cuts) <= 500
    if planner != "optimal":  # which a thousand tensors take seconds of
        assert len(plan_of(planner, [10] * 2500, costs=costs).cuts) <= MOST_BUFFERS


def test_more_buffers_than_there_may_be_are_refused():
    with pytest.raises(UserError, match=r"fusion.*1001 buffers, and 1000 are the most"):
        plan_of("fixed:bytes=4", [1] * 1001)


# SAFusion -------------------------------------------------------------------------------------------------


def test_it_selects_ahead_of_fusion_where_nothing_else_is_said():
    assert plan_of("safusion", [10]).selection == "ahead"
    assert plan_of("safusion:selection=behind", [10]).selection == "behind"
    assert plan_of("mg-wfbp", [10]).selection == "behind"


@given(steps())
def test_equation_1_each_buffer_fills_while_the_one_before_is_sent_and_would_not_with_a_tensor_more(step):
    times = RunTimes(*step)
    made = runs(adaptive_begins(times), times)
    for before, (first, last) in pairwise(made):
        exchange = times.exchange(*before)
        assert exchange >= filling(times, first, last) or last == first + 1
        assert last == len(times) or exchange < filling(times, first, last + 1)


@given(steps())
def test_equation_2_the_first_buffer_is_the_smallest_that_beats_an_exchange_for_each_tensor(step):
    times = RunTimes(*step)

    def holds(last, slack=-1e-9):
        one_by_one = sum(times.exchange(tensor, tensor + 1) for tensor in range(last))
        return times.backward(0, last) + times.exchange(0, last) < one_by_one + slack

    last = first_buffer(times)
    assert not any(holds(fewer) for fewer in range(1, last))
    assert last == 1 or holds(last, slack=1e-9)


@given(steps())
def test_equation_3_what_is_sent_after_all_buffers_could_be_filled_is_one_tail(step):
    times = RunTimes(*step)
    begins = adaptive_begins(times)
    fillings = sum(filling(times, *run) for run in runs(begins, times)[1:])
    merged = without_tail(times, begins)
    assert merged == begins[: len(merged)]
    exchanges = [sum(times.exchange(*run) for run in runs(begins, times)[:number]) for number in range(len(begins) + 1)]
    assert all(seconds <= fillings + 1e-9 for seconds in exchanges[: len(merged)])
    assert len(merged) == len(begins) or exchanges[len(merged)] > fillings - 1e-9


@given(steps())
def test_the_tail_is_that_of_equation_3_or_begins_a_buffer_later_where_a_step_then_ends_sooner(step):
    profile, sizes, costs = step
    times = RunTimes(*step)
    published, chosen = (
        plan_of(f"safusion:tail={tail}", sizes, profile=profile, costs=costs) for tail in ("paper", "timeline")
    )
    begins = adaptive_begins(times)
    assert published.cuts == times.cuts(without_tail(times, begins))
    assert chosen.cuts in (published.cuts, times.cuts(begins)[: len(published.cuts) + 1])
    assert seconds_of(chosen, times) <= seconds_of(published, times)


def test_between_workers_alone_it_puts_as_many_tensors_into_each_buffer():
    assert plan_of("safusion:workers=inter:buffers=3", [10, 20, 30, 40, 50, 60, 70]).cuts == (0, 60, 210)


# Merging --------------------------------------------------------------------------------------------------

SECONDS = profile_of([1.0, 1.0, 1.0, 1.0], 0.0)


def cuts_of(planner, startup, call=0.0, element=0.0, profile=SECONDS, sizes=(1, 1, 1, 1)):
    """Of four tensors of one element each, or of ``sizes``.

    Compressing takes ``call`` for each buffer and ``element`` for each of those.
    """
    costs = BufferCosts(lambda n: call + n * element, lambda n: startup + n * 0.1)
    return plan_of(planner, sizes, profile=profile, costs=costs).cuts


@pytest.mark.parametrize("planner", ["mg-wfbp", "omgs"])
def test_gradients_are_merged_where_the_next_comes_within_a_startup(planner):
    assert cuts_of(planner, startup=0.5) == (0, 1, 2, 3)
    assert cuts_of(planner, startup=1.2) == (0,)


def test_compression_is_weighed_by_omgs_alone():
    quick = profile_of([0.1, 0.1, 0.1, 0.1], 0.0)
    assert cuts_of("mg-wfbp", startup=0.3, element=1.0, profile=quick) == (0,)
    assert cuts_of("omgs", startup=0.3, element=1.0, profile=quick) == (0, 1, 2, 3)


def test_where_compressing_halts_backward_cupcake_compresses_seldom():
    assert cuts_of("cupcake", startup=0.05) == (0, 3)
    assert cuts_of("cupcake", startup=0.05, call=1.0) == (0,)
    assert cuts_of("optimal", startup=0.05, call=1.0) == (0, 3)


# The best -------------------------------------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(steps(most_tensors=8))
def test_no_other_cuts_are_better_than_the_optimal(step):
    times = RunTimes(*step)
    count = len(times)
    best = min(
        times.step_seconds([0, *inner]) for size in range(count) for inner in combinations(range(1, count), size)
    )
    assert times.step_seconds(best_begins(times)) == pytest.approx(best)


@settings(max_examples=examples(40))
@given(steps(most_tensors=7))
def test_nor_where_compressing_halts_backward(step):
    times = RunTimes(*step)
    count = len(times)

    def seconds(begins):
        compressed, sent = times.backward_begin, 0.0
        for run in runs(begins, times):
            compressed += times.backward(*run) + times.compress(*run)
            sent = max(sent, compressed) + times.exchange(*run)
        return sent

    best = min(seconds([0, *inner]) for size in range(count) for inner in combinations(range(1, count), size))
    assert seconds(best_begins(times, compression_halts_backward=True)) == pytest.approx(best)


def test_autotuning_takes_the_size_that_is_best_in_the_timeline():
    assert cuts_of("autotuned", startup=0.5) == (0,)  # 64 KiB hold them all
    costs = BufferCosts(lambda n: 0.0, lambda n: 1e-4 + n * 1e-7)
    sizes = [100_000] * 20
    made = plan_of("autotuned", sizes, profile=profile_of([0.01] * 20, 0.1), costs=costs)
    assert len(made.cuts) == 20
    assert len(plan_of("autotuned", sizes, costs=BufferCosts(lambda n: 0.0, lambda n: 1.0)).cuts) == 1


@given(steps(), st.data())
def test_backward_passes_of_runs_add_up_to_the_whole_and_hold_nothing_of_the_forward_pass(step, data):
    times = RunTimes(*step)
    middle = data.draw(st.integers(0, len(times)))
    parts = (
        times.backward(0, middle) if middle else 0.0,
        times.backward(middle, len(times)) if middle < len(times) else 0.0,
    )
    assert sum(parts) == pytest.approx(times.compute_seconds - times.backward_begin)
