"""How many times dense's steps a plan is charged, by the optimizer's family."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.control.cost_model.convergence import convergence_slowdown, doubt
from trimtab.control.types import ModelFacts, OptimizerFamily
from trimtab.evaluation.judge.recorded import load
from trimtab.plan.plan import Plan, dense_plan
from trimtab.plan.timetable import Iteration, Send, Timetable


def trained_by(name, kind, num_ranks=4):
    return ModelFacts(1000, (1000,), num_ranks, OptimizerFamily(name, kind))


SGD, ADAM, UNKNOWN = trained_by("SGD", "sgd"), trained_by("AdamW", "adam"), trained_by("Invented", "unknown")

ratios = st.floats(1e-6, 1, exclude_max=True)
gains = st.floats(0.001, 0.999)
collectives = st.sampled_from(["all-gather", "artopk-star-ring", "artopk-var-tree"])


@pytest.mark.parametrize(
    ("collective", "gain", "steps"),
    [("all-gather", 0.5, 1.0075), ("all-gather", 0.1, 1.0389711), ("artopk-star-ring", 0.02, 1.2315032)],
)
def test_sgd_is_charged_the_delay_of_its_residual(collective, gain, steps):
    assert convergence_slowdown(Plan(0.01, collective), gain, SGD) == pytest.approx(steps, rel=1e-6)


@pytest.mark.parametrize(("num_local", "steps"), [(1, 1.0389711), (4, 1.1177267), (16, 1.3492688)])
def test_sgd_is_charged_the_longer_wait_of_rounds_and_the_half_of_one_that_has_not_arrived(num_local, steps):
    plan = Plan(0.01, "all-gather", source=f"update:steps={num_local}")
    assert convergence_slowdown(plan, 0.1, SGD) == pytest.approx(steps, rel=1e-6)
    whole = replace(dense_plan(), source=plan.source)
    assert convergence_slowdown(whole, 1.0, SGD) == pytest.approx(1 + (num_local - 1) / 2 / 200)


@pytest.mark.parametrize(("num_local", "residual"), [(1, 4.5), (4, 4.1), (16, 3.7)])
def test_what_was_fitted_on_a_perceptron_holds_of_a_cnn_whose_training_was_recorded(num_local, residual, tmp_path):
    """Steps behind dense at 0.01. The residual's norm is what the benchmark `local_updates` sees of a CNN."""
    recorded = load("cnn", tmp_path / "none")
    plan = Plan(0.01, "all-gather", source=f"update:steps={num_local}")
    needed, progress = 0, 0.0
    while progress < recorded.dense_steps:
        progress += recorded.pace(plan, progress)
        needed += 1
    charged = 200 * (convergence_slowdown(plan, 1 / (1 + residual**2), SGD) - 1)
    assert 1 / 1.6 < charged / (needed - recorded.dense_steps) < 1.6


@pytest.mark.parametrize(("ratio", "steps"), [(0.1, 1.6), (0.01, 2.7), (0.001, 7.0), (1 - 1e-9, 1.0)])
def test_adam_is_charged_what_was_measured_whatever_the_gain(ratio, steps):
    for gain in (0.01, 0.99):
        assert convergence_slowdown(Plan(ratio, "all-gather"), gain, ADAM) == pytest.approx(steps)


def test_adam_is_charged_twice_for_what_is_selected_under_an_outer_momentum():
    for plan in (Plan(0.03, "all-gather"), dense_plan()):
        plain, moved = (
            convergence_slowdown(replace(plan, source=f"update{outer}:steps=16"), 1.0, ADAM)
            for outer in (":outerRate=0.7", ":outerMomentum=0.9:outerRate=0.7")
        )
        assert moved == pytest.approx(plain * (1 if plan.is_dense else 2))


def test_what_selected_updates_need_is_doubted_the_more_the_less_they_send():
    """Gradients' table stands at its careful edge, and SGD's law reads what the job itself shows."""
    for plan, doubted in ((Plan(0.1, "all-gather"), 0.05), (Plan(0.001, "all-gather"), 0.158), (dense_plan(), 0.0)):
        updates = replace(plan, source="update:steps=16")
        assert exp(doubt(updates, ADAM)) == pytest.approx(1 + doubted, abs=1e-3)
        assert doubt(plan, ADAM) == doubt(updates, SGD) == 0


@given(low=ratios, high=ratios, collective=collectives, gain=gains, other_gain=gains)
def test_a_smaller_ratio_never_costs_adam_fewer_steps(low, high, collective, gain, other_gain):
    low, high = sorted((low, high))
    more, fewer = (convergence_slowdown(Plan(c, collective), g, ADAM) for c, g in ((low, gain), (high, other_gain)))
    assert more >= fewer * (1 - 1e-9) >= 1 - 1e-9


@given(ratio=ratios, gain=gains)
def test_shared_indices_never_cost_adam_fewer_steps(ratio, gain):
    own, shared = (convergence_slowdown(Plan(ratio, name), gain, ADAM) for name in ("all-gather", "artopk-star-ring"))
    assert shared >= own


@pytest.mark.parametrize(("wire", "more"), [("bfloat16", 1.002), ("int8", 1.006), ("int4", 1.11), ("int2", 1.35)])
@pytest.mark.parametrize("facts", [SGD, ADAM])
def test_what_rounding_takes_is_charged_as_if_it_had_to_be_sent_again(wire, more, facts):
    for plan in (Plan(0.01, "all-gather"), Plan(0.01, "all-gather", source="update:steps=4")):
        rounded, exact = (convergence_slowdown(each, 0.5, facts) for each in (replace(plan, wire=wire), plan))
        assert rounded == pytest.approx(more * exact)


def test_the_charge_has_no_step_in_it():
    """Where one interpolation meets the next, and where the measured ratios end."""
    charged = [convergence_slowdown(Plan(10 ** (-i / 100), "all-gather"), 0.5, ADAM) for i in range(1, 500)]
    assert all(1 <= after / before < 1.03 for before, after in pairwise([1.0, *charged]))


@pytest.mark.parametrize(("num_ranks", "ratio"), [(2, 0.02), (4, 0.01)])
def test_what_counts_is_how_much_all_ranks_together_select(num_ranks, ratio):
    facts = trained_by("AdamW", "adam", num_ranks)
    assert convergence_slowdown(Plan(ratio, "all-gather"), 0.5, facts) == pytest.approx(2.7)
    assert convergence_slowdown(Plan(0.04, "artopk-star-ring"), 0.5, facts) == pytest.approx(2.7)


def test_more_ranks_than_four_are_not_counted():
    plan = Plan(0.001, "all-gather")
    measured, more = (convergence_slowdown(plan, 0.5, trained_by("AdamW", "adam", n)) for n in (4, 64))
    assert measured == more


def test_beyond_what_was_measured_a_tenth_of_the_values_costs_ten_times_the_steps():
    measured, beyond = (convergence_slowdown(Plan(ratio, "artopk-star-ring"), 0.5, ADAM) for ratio in (0.001, 0.0001))
    assert beyond == pytest.approx(10 * measured)


@given(ratio=ratios, gain=gains, collective=collectives)
def test_an_unknown_optimizer_is_charged_like_adam(ratio, gain, collective):
    plan = Plan(ratio, collective)
    assert convergence_slowdown(plan, gain, UNKNOWN) == convergence_slowdown(plan, gain, ADAM)


@pytest.mark.parametrize("optimizer", [SGD, ADAM, UNKNOWN])
def test_dense_costs_nothing(optimizer):
    assert convergence_slowdown(dense_plan(), 1.0, optimizer) == 1.0


@given(
    ratio=ratios,
    fewer=st.floats(1e-6, 1, exclude_max=True),
    few=st.integers(1, 64),
    many=st.integers(1, 64),
    num_ranks=st.integers(2, 16),
)
def test_updates_cost_the_more_steps_the_less_is_sent_the_longer_rounds_last_and_the_more_ranks_there_are(
    ratio, fewer, few, many, num_ranks
):
    (fewer, ratio), (few, many) = sorted((fewer, ratio)), sorted((few, many))

    def charged(ratio, num_local, num_ranks):
        plan = Plan(ratio, "all-gather", source=f"update:steps={num_local}")
        return convergence_slowdown(plan, 0.5, trained_by("AdamW", "adam", num_ranks))

    least = charged(ratio, few, num_ranks) * (1 - 1e-9)
    assert charged(fewer, few, num_ranks) >= least
    assert charged(ratio, many, num_ranks) >= least
    assert charged(ratio, few, num_ranks + 1) >= least


def test_a_whole_update_is_charged_too_for_each_rank_sees_its_own_batches_alone():
    plan = replace(dense_plan(), source="update:steps=1")
    assert convergence_slowdown(plan, 1.0, ADAM) > 1 == convergence_slowdown(dense_plan(), 1.0, ADAM)


@pytest.mark.parametrize("facts", [SGD, ADAM], ids=["sgd", "adam"])
def test_iterations_that_are_averaged_into_one_update_do_the_work_of_one(facts):
    plan = Plan(0.01, "all-gather", schedule="deft")
    two_an_update = (Iteration((Send(0, 0),), update=0), Iteration((Send(0, 0),), update=None))
    averaged, added_up = (
        replace(plan, timetable=Timetable((), two_an_update, averages=each)) for each in (True, False)
    )
    assert convergence_slowdown(averaged, 0.5, facts) == pytest.approx(2 * convergence_slowdown(plan, 0.5, facts))
    assert convergence_slowdown(added_up, 0.5, facts) == convergence_slowdown(plan, 0.5, facts)


def test_where_the_loss_falls_short_of_its_gradients_late_updates_pay_for_the_delay_and_sums_do_no_more_than_means():
    plan = Plan(0.01, "all-gather", schedule="deft")
    late = (Iteration((Send(0, 0),), update=-1), Iteration((Send(0, 0),), update=None))
    charged = [
        convergence_slowdown(
            replace(plan, timetable=Timetable((), late, averages=each)), 0.5, SGD, tolerates_staleness=False
        )
        for each in (True, False)
    ]
    assert charged == [pytest.approx(2.5 * convergence_slowdown(plan, 0.5, SGD))] * 2
    in_time = Timetable((), (Iteration((Send(0, 0),), update=0),))
    kept = convergence_slowdown(replace(plan, timetable=in_time), 0.5, SGD, tolerates_staleness=False)
    assert kept == convergence_slowdown(plan, 0.5, SGD)
