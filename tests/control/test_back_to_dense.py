"""Guard rails, by what a session sees of the controller."""

from __future__ import annotations

from dataclasses import replace

import pytest
from driving import FACTS, FAST, SLOW, cluster, decisions, report, sparse_controller, train
from simulator import GIGABIT, SINGLE, dense
from trimtab.control.factory import make_controller
from trimtab.control.types import ControllerSettings, SwitchPlan
from trimtab.evaluation.judge.simulated_run import SimulatedRun, static
from trimtab.plan.plan import Plan
from trimtab_api.catalogue import COLLECTIVES
from trimtab_api.netmon.view import NetworkView


def test_two_dropped_steps_bring_dense_back():
    controller = sparse_controller()
    for step in range(2):
        controller.observe_step(report(step, controller.plan, finite=False), 1.0 + step)
    action = controller.next_action(3.0, 100)
    assert isinstance(action, SwitchPlan)
    assert action.plan.is_dense
    assert "not finite" in action.decision.reason


def test_a_residual_out_of_hand_brings_dense_back():
    controller = sparse_controller()
    for step in range(40):
        controller.observe_step(report(step, controller.plan, residual_norm=1.3**step, collective=0.02), 1.0 + step)
        action = controller.next_action(1.0 + step, 100)
        if isinstance(action, SwitchPlan) and action.decision.trigger == "guard":
            break
    assert action.plan.is_dense
    assert "residual" in action.decision.reason


@pytest.mark.parametrize(("growth", "is_told"), [(1.3, True), (1.0, False)])
def test_a_static_plan_with_a_residual_out_of_hand_is_kept_and_the_user_is_told_once(growth, is_told):
    settings = static(Plan.parse("0.01/all-gather", SINGLE))
    controller = make_controller(settings, FACTS)
    told = []
    for step in range(60):
        controller.observe_step(report(step, controller.plan, residual_norm=growth**step), 1.0 + step)
        told += [warning] if (warning := controller.take_warning()) else []
    assert len(told) == is_told
    assert controller.plan == settings.static_plan
    for sentence in told:
        assert "the residual grew" in sentence
        assert "0.01/all-gather" in sentence
        assert "lower the learning rate" in sentence


def test_a_plan_measured_slower_than_dense_is_left():
    """The scheme's software is ten times as slow as its closed form says; dense's is not."""
    misleading = cluster((0, 1e-3, 2 * GIGABIT))
    broken = dict.fromkeys(COLLECTIVES, (1.0, 2e-4, 1.05, 5e-10, 0.6))
    broken["dense-ring"] = (1.0, 2e-4, 1.05, 5e-10, 2e-3)
    run = train(SimulatedRun(replace(misleading, overheads=broken), ControllerSettings(), 1), 90)
    assert run.controller.plan.is_dense
    assert any("slower" in line["reason"] or "dense needs" in line["reason"] for line in decisions(run))
    dense_progress = train(SimulatedRun(replace(misleading, overheads=broken), dense(), 1), 90).progress
    assert run.progress > 0.9 * dense_progress


def test_other_work_on_the_machine_does_not_send_the_job_to_dense_and_out_again():
    """Two ranks on one machine whose speed wanders by four tenths over seconds; compression saves a tenth of a step."""
    shared = cluster((0, 60e-6, 10 * GIGABIT), num_ranks=2, num_elements=2_000_000, noise=0.15, drift=0.4)
    run = SimulatedRun(replace(shared, compute_seconds=0.04, first_step=1.5), ControllerSettings(), seed=1)
    train(run, 12)
    assert [(line["trigger"], line["adopted"]["ratio"] < 1) for line in decisions(run)] == [("warm-up", True)]


@pytest.mark.parametrize("period", [5, 12])
def test_a_network_that_becomes_slow_does_not_send_the_job_to_dense(period):
    """A plan that saves little on the fast network saves nearly all on the slow one, of which monitors tell late."""
    fast, slow = (1e-3, GIGABIT), (20e-3, 0.02 * GIGABIT)
    phases = [(period * turn, *(slow if turn % 2 else fast)) for turn in range(20)]
    flapping = cluster(*phases, num_ranks=2, num_elements=200_000, monitor_delay=1.5)
    run = train(SimulatedRun(replace(flapping, compute_seconds=0.025), ControllerSettings(), seed=1), 100)
    assert sum(line["trigger"] == "network" for line in decisions(run, changed=False)) > 5
    assert not [line for line in decisions(run) if line["trigger"] == "guard"]


def test_a_changed_network_ends_the_wait_of_a_plan_that_was_merely_slow():
    controller = make_controller(ControllerSettings(), FACTS)
    controller.observe_network(NetworkView(1, *FAST), 0.0)
    now, adopted = 0.0, []
    for step in range(12):
        now += 0.3
        speed = 0.3 if controller.plan.is_dense else 2.0
        slow = report(step, controller.plan, collective=speed - 0.1, step_seconds=speed)
        controller.observe_step(slow, now)
        action = controller.next_action(now, 100)
        adopted += [action.plan] if isinstance(action, SwitchPlan) else []
    assert [plan.is_dense for plan in adopted] == [False, True]
    for revision in (2, 3):
        controller.observe_network(NetworkView(revision, *SLOW), now)
    action = controller.next_action(now, 100)
    assert isinstance(action, SwitchPlan)
    assert not action.plan.is_dense


def test_a_plan_that_failed_is_not_chosen_again_on_its_network():
    controller = sparse_controller()
    failed = controller.plan
    for step in range(2):
        controller.observe_step(report(step, failed, finite=False), 1.0 + step)
    assert controller.next_action(3.0, 100).plan.is_dense
    chosen = []
    for step in range(2, 40):
        controller.observe_step(report(step, controller.plan, collective=2.0, step_seconds=2.1), 2.1 * step)
        action = controller.next_action(2.1 * step, 100)
        chosen += [action.plan] if isinstance(action, SwitchPlan) else []
    assert chosen
    assert (failed.ratio, failed.collective) not in {(plan.ratio, plan.collective) for plan in chosen}
