"""The controller by what a session sees of it: reports in, actions out, records in the log."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from driving import FACTS, FAST, SLOW, cluster, decisions, report, sparse_controller, train
from simulator import GIGABIT, SINGLE, dense, random_cluster
from trimtab.control.factory import make_controller
from trimtab.control.types import (
    ControllerSettings,
    KeepGoing,
    ModelFacts,
    OptimizerFamily,
)
from trimtab.evaluation.judge.simulated_run import SimulatedRun, static
from trimtab.plan.plan import Plan
from trimtab_api.netmon.view import NetworkView

# Warm-up ------------------------------------------------------------------------------------------------


def test_the_warm_up_is_dense_and_short_where_no_plan_promises_much():
    run = SimulatedRun(cluster((0, 60e-6, 10 * GIGABIT), num_elements=2_000_000), ControllerSettings(), seed=1)
    assert run.controller.plan.is_dense
    train(run, 6)
    first = run.log[0]
    assert (first["trigger"], first["previous"]["ratio"]) == ("warm-up", 1)
    assert 2 <= first["step"] <= ControllerSettings().warmup_steps


def test_training_begins_under_what_the_model_chooses_where_that_promises_much():
    run = SimulatedRun(cluster((0, 1e-3, GIGABIT)), ControllerSettings(), seed=1)
    train(run, 5)
    start, first = decisions(run, changed=False)[:2]
    assert (start["step"], start["trigger"]) == (0, "warm-up")
    assert start["adopted"]["ratio"] < 1
    assert start["predicted_seconds"] < start["predicted_previous_seconds"]
    assert "until steps are measured" in start["reason"]
    assert first["trigger"] == "warm-up"
    assert 2 <= first["step"] <= ControllerSettings().warmup_steps + 2


def test_there_is_none_where_one_dense_step_would_take_seconds():
    run = SimulatedRun(cluster((0, *SLOW)), ControllerSettings(), seed=1)
    run.advance()
    assert decisions(run)[0]["step"] == 0
    assert not run.controller.plan.is_dense


def test_without_a_network_view_nothing_is_decided():
    controller = make_controller(ControllerSettings(), FACTS)
    for step in range(30):
        controller.observe_step(report(step, controller.plan), step * 0.2)
        assert controller.next_action(step * 0.2, 100) == KeepGoing()


def test_a_stale_view_is_no_view():
    controller = make_controller(ControllerSettings(), FACTS)
    controller.observe_network(NetworkView(1, *SLOW, stale=True), 0.0)
    assert controller.next_action(0.0, 100) == KeepGoing()


# Policies that do not adapt -----------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [dense(), static(Plan.parse("0.01/all-gather", SINGLE))])
def test_a_static_plan_stays(settings):
    run = train(SimulatedRun(random_cluster(5, 4), settings, seed=1), 60)
    assert run.controller.plan == settings.static_plan
    assert run.log == []


def test_one_rank_has_nothing_to_decide():
    controller = make_controller(ControllerSettings(), replace(FACTS, num_ranks=1))
    controller.observe_network(NetworkView(1, *SLOW), 0.0)
    assert controller.next_action(0.0, 100) == KeepGoing()


# Adapting -----------------------------------------------------------------------------------------------


def test_a_slower_network_brings_a_smaller_exchange_within_two_seconds_of_the_news():
    quiet = cluster((0, *FAST), (20, 2e-3, 0.1 * GIGABIT), monitor_delay=0.3)
    run = train(SimulatedRun(quiet, ControllerSettings(), seed=2), 20)
    before = run.controller.plan
    train(run, 3.5)
    after = run.controller.plan
    assert quiet.sync_seconds(after, quiet.network(21)) < 0.5 * quiet.sync_seconds(before, quiet.network(21))
    assert decisions(run)[-1]["trigger"] == "network"


def test_dense_is_kept_where_nothing_beats_it():
    """A network so fast that selecting costs more than sending."""
    run = train(SimulatedRun(cluster((0, 1e-5, 1000 * GIGABIT), num_elements=10_000), ControllerSettings(), seed=1), 20)
    assert run.controller.plan.is_dense
    assert decisions(run) == []


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "monitor_noise"), [(0, 0.05), (1, 0.05), (2, 0.05), *((n, 0.03) for n in range(8))])
def test_ten_minutes_on_an_unchanged_network_bring_no_network_change(seed, monitor_noise):
    quiet = cluster((0, 2e-3, 0.3 * GIGABIT), monitor_noise=monitor_noise, noise=0.08)
    run = SimulatedRun(quiet, ControllerSettings(), seed=seed)
    train(run, 600)
    first, *later = decisions(run)
    assert first["trigger"] == "warm-up"
    assert [line for line in later if line["trigger"] == "network" and line["step"] > first["step"] + 30] == []
    assert run.num_changes <= 4


@pytest.mark.parametrize("seed", range(4))
def test_every_change_has_its_cause_and_its_promise(seed):
    run = SimulatedRun(random_cluster(seed, 4), ControllerSettings(), seed)
    run.until_target()
    for line in decisions(run):
        assert line["trigger"] in ("warm-up", "network", "gain", "trials", "measured")
        better_by_time = line["predicted_seconds"] < line["predicted_previous_seconds"]
        assert better_by_time or line["adopted"]["ratio"] > line["previous"]["ratio"]
        assert line["predicted_seconds"] < line["inputs"]["dense_step_seconds"] * (1 + 1e-9)
        assert line["reason"]
    measured = {line["id"] for line in run.log if line["record"] == "measured"}
    assert measured <= {line["id"] for line in decisions(run)}
    assert len(measured) >= len(decisions(run)) - 1
    json.dumps(run.log, allow_nan=False)


def test_versions_rise_by_one_with_every_change():
    run = SimulatedRun(random_cluster(3, 4), ControllerSettings(), 3)
    run.until_target()
    versions = [line["adopted"]["version"] for line in decisions(run)]
    assert versions == list(range(1, len(versions) + 1))


def test_the_same_seed_and_measurements_bring_the_same_decisions():
    logs = []
    for _ in range(2):
        run = train(SimulatedRun(random_cluster(11, 4), ControllerSettings(), 11), 20)
        logs.append(run.log)
    assert logs[0] == logs[1]


# Trials -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_trials_and_their_cost_stay_within_their_share(seed):
    drifting = cluster((0, 2e-3, 0.3 * GIGABIT))
    run = SimulatedRun(drifting, ControllerSettings(), seed)
    train(run, 60)
    run.cluster = replace(
        drifting, prior_half_gain_ratio={"all": 0.2, "artopk": 0.35}
    )  # the gradient has become flatter
    train(run, 60)
    assert run.exploration_seconds > 0
    assert run.exploration_seconds < 0.1 * run.now


def test_a_trial_never_crosses_an_epochs_end():
    controller = make_controller(ControllerSettings(), FACTS)
    asked = []
    original = controller._trials

    def spy(evaluator, now, steps_left):
        action = original(evaluator, now, steps_left)
        asked.append((steps_left, action))
        return action

    controller._trials = spy
    run = SimulatedRun(cluster((0, 2e-3, 0.3 * GIGABIT), steps_per_epoch=7), ControllerSettings(), 1)
    run.controller = controller
    train(run, 60)
    run.cluster = replace(run.cluster, prior_half_gain_ratio={"all": 0.2, "artopk": 0.35})
    train(run, 60)
    assert asked
    assert all(action is None or action.iterations <= steps_left for steps_left, action in asked)


# The optimizer's family ---------------------------------------------------------------------------------

ADAM, UNKNOWN = OptimizerFamily("AdamW", "adam"), OptimizerFamily("Frobnicator", "unknown")


def test_adam_is_given_a_larger_ratio_than_sgd_where_the_network_asks_for_compression():
    ratios = {}
    for optimizer in (OptimizerFamily("SGD", "sgd"), ADAM, UNKNOWN):
        run = train(SimulatedRun(cluster((0, *SLOW), optimizer=optimizer), ControllerSettings(), 1), 60)
        ratios[optimizer.kind] = run.controller.plan.ratio
    assert 1 > ratios["adam"] > 2 * ratios["sgd"]
    assert ratios["unknown"] == ratios["adam"]


def test_under_adam_all_of_the_gradient_is_sent_where_no_selection_makes_up_for_its_steps():
    """SGD selects here: its steps would be two thirds as long, and hardly more. In half the bytes both are dense."""
    sent_at = {}
    for kind in ("sgd", "adam"):
        near = cluster((0, 1e-3, 3 * GIGABIT), optimizer=OptimizerFamily(kind, kind))
        run = train(SimulatedRun(near, ControllerSettings(), 1), 120)
        sent_at[kind] = {line["adopted"]["name"] for line in decisions(run)}
    assert not any(Plan.parse(name).is_dense for name in sent_at["sgd"])
    sent_whole = [Plan.parse(name) for name in sent_at["adam"]]
    assert {(plan.is_dense, plan.source, plan.wire) for plan in sent_whole} == {(True, "gradient", "bfloat16")}


def test_under_adam_no_trial_runs_for_the_gain_tells_nothing():
    drifting = cluster((0, 2e-3, 0.3 * GIGABIT), optimizer=ADAM)
    run = train(SimulatedRun(drifting, ControllerSettings(), 1), 60)
    assert not run.controller.plan.is_dense
    run.cluster = replace(
        drifting, prior_half_gain_ratio={"all": 0.2, "artopk": 0.35}
    )  # the gradient has become flatter
    train(run, 60)
    assert run.exploration_seconds == 0
    assert {line["trigger"] for line in decisions(run, changed=False)}.isdisjoint({"gain", "trials"})


def test_a_decision_says_that_the_optimizer_is_not_known():
    reasons = {}
    for optimizer in (ADAM, UNKNOWN):
        run = train(SimulatedRun(cluster((0, *SLOW), optimizer=optimizer), ControllerSettings(), 1), 20)
        reasons[optimizer.kind] = [line["reason"] for line in decisions(run, changed=False)]
    assert reasons["unknown"]
    assert all("what compression costs Frobnicator is not known" in reason for reason in reasons["unknown"])
    assert not any("not known" in reason for reason in reasons["adam"])


# What says nothing of another plan or network ------------------------------------------------------------


def train_until_the_network_is_fast(controller, num_steps):
    for step in range(num_steps):
        controller.observe_step(report(step, controller.plan), 1.0 + 0.2 * step)
    for revision in (2, 3):
        controller.observe_network(NetworkView(revision, *FAST), 1.0 + 0.2 * num_steps)


def test_the_first_steps_on_another_network_are_no_measure_of_it():
    """Queues drain, connections find their pace: what these steps take, no plan takes for long."""
    learned = []
    for first in (0.1, 5.0):
        controller = sparse_controller()
        train_until_the_network_is_fast(controller, 12)
        for step in range(12, 15):
            controller.observe_step(
                report(step, controller.plan, collective=first, step_seconds=first + 0.1), 4.0 + step
            )
        learned.append(controller.state_dict()["predictor"])
    assert learned[0] == learned[1]


def test_a_change_is_measured_by_steps_on_its_own_network_alone():
    controller = sparse_controller()
    train_until_the_network_is_fast(controller, 6)
    for step in range(6, 20):
        controller.observe_step(report(step, controller.plan, step_seconds=3.0), 3.0 * step)
    (measured,) = [line for line in controller.log.drain() if line["record"] == "measured"]
    assert (measured["measured_step_seconds"], measured["num_steps"]) == (0.2, 5)


def test_another_plan_has_a_gain_of_its_own():
    controller = sparse_controller()
    for step in range(3):
        controller.observe_step(report(step, controller.plan), 1.0 + step)
    assert controller.state_dict()["gain"]["steps"] == 2
    for step in range(3, 5):
        controller.observe_step(report(step, controller.plan, finite=False), 1.0 + step)
    assert controller.next_action(5.0, 100).plan.is_dense
    assert controller.state_dict()["gain"]["steps"] == 0


# Suspicion ----------------------------------------------------------------------------------------------


def test_a_measurement_is_asked_for_when_the_exchange_no_longer_fits_and_not_before():
    run = SimulatedRun(cluster((0, *FAST), (1000, *SLOW)), ControllerSettings(), 1)
    train(run, 30)
    controller, plan = run.controller, run.controller.plan
    usual = run.cluster.sync_seconds(plan, run.cluster.network(0))
    assert not controller.drift.asks_to_measure(run.now)
    for step in range(3):
        slow = report(run.step + step, plan, collective=usual + 0.2, step_seconds=0.3)
        controller.observe_step(slow, run.now + step)
    assert controller.drift.asks_to_measure(run.now + 3)
    assert not controller.drift.asks_to_measure(run.now + 3)


def test_no_measurement_is_asked_for_while_the_first_steps_are_still_learned_from():
    controller = SimulatedRun(cluster((0, *FAST)), ControllerSettings(warmup_steps=8), 1).controller
    controller.observe_network(NetworkView(1, *FAST), 0.0)
    controller.next_action(0.0, 100)
    for step in range(5):
        controller.observe_step(report(step, controller.plan, collective=9.0, step_seconds=9.1), 10.0 * step)
        assert not controller.drift.asks_to_measure(10.0 * step)


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_moved_gain_waits_while_exchanges_are_off_for_a_reason_nobody_knows(seed):
    """The plan in use would be the only one known to suffer, and all others look the better for it."""
    changes_at, delay = 60.0, 12.0
    quiet, narrow = (0, 0.5e-3, GIGABIT), (changes_at, 0.5e-3, GIGABIT / 25)

    def acted_on_the_gain(*phases):
        """Whether it did before the monitor could have told of the narrower network."""
        run = train(SimulatedRun(cluster(*phases, monitor_delay=delay), ControllerSettings(), seed), changes_at + 0.5)
        run.cluster = replace(run.cluster, prior_half_gain_ratio={"all": 0.2, "artopk": 0.35})
        train(run, delay)
        acted = [line["time"] for line in decisions(run, changed=False) if line["trigger"] in ("gain", "trials")]
        return any(changes_at < time < changes_at + delay for time in acted)

    assert acted_on_the_gain(quiet), "it has moved"
    assert not acted_on_the_gain(quiet, narrow)


def test_a_moved_gain_waits_while_deciding_has_taken_a_share_of_training_that_shows():
    def acts_on_the_gain(deciding_seconds):
        run = train(SimulatedRun(cluster((0, *FAST)), ControllerSettings(), 2), 60.5)
        run.controller.trial_budget.decided(deciding_seconds)
        run.cluster = replace(run.cluster, prior_half_gain_ratio={"all": 0.2, "artopk": 0.35})
        train(run, 12.0)
        triggers = {line["trigger"] for line in decisions(run, changed=False) if line["time"] > 60.5}
        return not triggers.isdisjoint({"gain", "trials"})

    assert acts_on_the_gain(0.0)
    assert not acts_on_the_gain(0.06 * 60.5 + 1.0)


# Checkpoints --------------------------------------------------------------------------------------------


def test_state_survives_a_restart_as_json():
    run = train(SimulatedRun(random_cluster(4, 4), ControllerSettings(), 4), 30)
    sizes = run.cluster.tensor_sizes
    restored = make_controller(ControllerSettings(), ModelFacts(sum(sizes), sizes, 4), seed=4)
    restored.load_state_dict(json.loads(json.dumps(run.controller.state_dict())))
    assert restored.plan == run.controller.plan
    assert restored.state_dict() == run.controller.state_dict()
