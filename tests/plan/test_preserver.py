"""The Preserver's expected loss, and what it lets pass."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest
from drawn import even
from trimtab.papers.deft import queues
from trimtab.papers.deft.deft import plan_deft
from trimtab.papers.deft.preserver import LossModel, loss_model, preserved
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import ModuleTimes, Profile
from trimtab.plan.schedules import StepFacts

LATE = LossModel(loss=2.0, learning_rate=0.01, squared_gradient_norm=0.2, noise=1.0)
EARLY = replace(LATE, squared_gradient_norm=20.0)


def walked(model, size, num_walks=200_000):
    """Mean loss after one step of the random walk that rebounds from 0."""
    draw = random.Random(1)
    spread = model.noise / size**0.5
    losses = (
        model.loss - model.learning_rate * draw.gauss(model.squared_gradient_norm, spread) for _ in range(num_walks)
    )
    return sum(map(abs, losses)) / num_walks


@pytest.mark.parametrize("model", [LATE, LossModel(0.02, 0.5, 0.05, 0.1), LossModel(0.5, 1.0, 0.4, 1.0)])
@pytest.mark.parametrize("size", [1, 3])
def test_the_expected_loss_is_the_mean_of_walks_that_rebound(model, size):
    assert model.after([size]) == pytest.approx(walked(model, size), rel=0.01)


def test_without_noise_each_update_lowers_the_loss_by_the_learning_rate_times_the_squared_norm():
    model = replace(LATE, noise=0.0)
    assert model.after([1, 2]) == pytest.approx(2.0 - 2 * 0.01 * 0.2)


def test_an_update_by_a_sum_lowers_the_loss_by_as_much_as_its_iterations_would():
    model = replace(EARLY, noise=0.0, sums=True)
    assert model.after([1, 2]) == pytest.approx(model.after([1, 1, 1]))
    assert not EARLY.accepts([2, 1, 1])
    assert replace(EARLY, sums=True).accepts([2, 1, 1])


def test_the_papers_table_v_is_accepted():
    """ResNet-101 at iteration 1000: 0.2103 becomes 0.1922 by four batches, 0.1935 by three of which one is double."""
    model = LossModel(0.2103, 0.01, (0.2103 - 0.1922) / 4 / 0.01, noise=0.0)
    assert model.after([1] * 4) == pytest.approx(0.1922)
    assert not model.accepts([2, 1, 1]), "as steep as that, without the noise that larger batches lessen"
    assert replace(model, squared_gradient_norm=0.19).accepts([2, 1, 1])


def test_what_the_loss_does_not_bear_is_solved_again_with_larger_knapsacks():
    solve = partial(queues.timetable, even(16, 2.0))
    asked = []

    def recording(scale):
        asked.append(scale)
        return solve(scale)

    made = preserved(recording, queues.merged, LATE)
    assert made is not None
    assert made.iterations_per_update > 1.5
    assert asked == [1.0]
    strict = preserved(recording, queues.merged, EARLY)
    assert asked[1:4] == pytest.approx([1.0, 1.1, 1.21])
    assert strict is None or strict.iterations_per_update < made.iterations_per_update


def test_after_ten_retries_there_is_none():
    asked = []
    made = preserved(lambda scale: asked.append(scale) or queues.timetable(even(16, 9.0)), queues.merged, None)
    assert made is None
    assert len(asked) == 11


def test_without_a_model_only_an_update_in_each_iteration_passes():
    made = preserved(partial(queues.timetable, even(16, 0.8)), queues.merged, None)
    assert made is not None
    assert made.iterations_per_update == 1


def profile(**told):
    plan = Plan.parse("dense")
    everything = {"loss": 1.0, "squared_gradient_norm": 2.0, "gradient_variance": 3.0, "learning_rate": 0.1} | told
    return Profile(109, 3, plan, 0.2, (0.1, 0.2), (), (), **everything)


def test_the_model_is_of_sgd_and_of_scripts_that_tell_their_loss():
    assert loss_model(profile(), is_sgd=True) == LossModel(1.0, 0.1, 2.0, pytest.approx(6**0.5))
    assert loss_model(profile(), is_sgd=False) is None
    for name in ("loss", "squared_gradient_norm", "gradient_variance", "learning_rate"):
        assert loss_model(profile(**{name: None}), is_sgd=True) is None


@pytest.mark.parametrize(
    ("fall", "kept"),
    [(0.1, 0.5), (0.0, 0.0), (-0.1, -0.5), (None, None)],
)
def test_a_promise_is_the_learning_rate_times_the_squared_norm(fall, kept):
    assert profile(loss_fall=fall).kept_promise == (None if kept is None else pytest.approx(kept))
    assert profile(loss_fall=fall).tolerates_staleness(is_sgd=True) == (fall is None or kept >= 0.15)
    assert profile(loss_fall=fall).tolerates_staleness(is_sgd=False)


def test_an_update_by_a_mean_promises_as_much_for_all_of_its_iterations_as_one_would():
    averaged = replace(queues.timetable(even(16, 2.0)), averages=True)
    plan = replace(Plan.parse("dense/schedule=deft", FusionPlan(tuple(range(16)))), timetable=averaged)
    under = replace(profile(loss_fall=0.1), plan=plan)
    assert under.kept_promise == pytest.approx(0.5 * averaged.iterations_per_update)
    summed = replace(plan, timetable=replace(averaged, averages=False))
    assert replace(under, plan=summed).kept_promise == pytest.approx(0.5)


def asked_of(told, is_sgd=True, **options):
    """DeFT's timetable for eight buckets that take twice as long to cross as to compute."""
    sizes = (1000,) * 8
    modules = tuple(ModuleTimes(f"m{i}", 7000 - 1000 * i, 8000 - 1000 * i, 0.02, 0.04) for i in range(8))
    known = replace(told, tensor_backward_seconds=(0.04,) * 8, modules=modules)
    facts = StepFacts(sizes, lambda size: 0.0, lambda size: 0.12 * size / 1000, is_sgd=is_sgd)
    cuts = tuple(range(0, 8000, 1000))
    return plan_deft(known, cuts, facts, **{"partition": 10**9, "preserver": "on", "merged": "auto"} | options)


BEARS = {"loss": 1.0, "squared_gradient_norm": 1e-3, "gradient_variance": 1e-2}


def test_updates_are_summed_once_the_loss_was_seen_to_fall_as_promised_and_training_is_no_longer_young():
    unseen, kept = asked_of(profile(**BEARS)), asked_of(profile(**BEARS, loss_fall=5e-5))
    assert (unseen.timetable.delays, kept.timetable.delays) == (False, True)
    assert not kept.timetable.averages
    assert kept.timetable.iterations_per_update > 1.5
    young = replace(profile(**BEARS, loss_fall=5e-5), step=99)
    assert not asked_of(young).timetable.delays
    by_name = asked_of(profile(**BEARS), merged="mean").timetable
    assert (by_name.averages, by_name.iterations_per_update > 1.5) == (True, True)


@pytest.mark.parametrize("merged", ["auto", "mean", "sum"])
def test_no_update_is_delayed_while_the_loss_falls_short_of_what_its_gradients_promise(merged):
    short = profile(**BEARS, loss_fall=5e-6)
    assert not short.tolerates_staleness(is_sgd=True)
    assert not asked_of(short, merged=merged).timetable.delays
    assert asked_of(short, merged=merged, preserver="off").timetable.delays
    assert asked_of(replace(short, loss_fall=5e-5), merged=merged).timetable.delays


def test_without_the_preserver_nothing_watches_the_loss_and_updates_are_averaged_as_published():
    assert asked_of(profile(**BEARS, loss_fall=5e-5), preserver="off").timetable.averages


@pytest.mark.parametrize("is_sgd", [True, False])
def test_no_update_is_delayed_where_the_loss_rose_when_one_was(is_sgd):
    """Whatever gradients promise: a delay does harm only once it is there."""
    promising = profile(**BEARS, loss_fall=5e-5)
    harmed = replace(promising, delay_harmed_at=promising.learning_rate)
    merged = "auto" if is_sgd else "mean"
    assert asked_of(promising, merged=merged).timetable.delays
    assert not asked_of(harmed, is_sgd=is_sgd, merged=merged).timetable.delays
    assert asked_of(harmed, preserver="off").timetable.delays


def test_a_delay_is_tried_again_at_half_of_the_learning_rate_at_which_it_did_harm():
    harmed = profile(delay_harmed_at=0.1)
    rates = (0.2, 0.1, 0.06, 0.04, None)
    bears = [replace(harmed, learning_rate=rate).tolerates_staleness(is_sgd=False) for rate in rates]
    assert bears == [False, False, False, True, False]
    assert not replace(harmed, delay_harmed_at=0.0).tolerates_staleness(is_sgd=False), "at a rate that was not known"
