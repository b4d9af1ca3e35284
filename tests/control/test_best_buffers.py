"""The buffers and the schedule that the judge runs a static plan in."""

from dataclasses import replace

import pytest
from trimtab.evaluation.judge.best_buffers import best_buffers
from trimtab.evaluation.judge.simulated_cluster import SGD, Phase, SimulatedCluster
from trimtab.plan.plan import Plan
from trimtab_api.catalogue import schedules

PLAN = Plan.parse("0.01/all-gather/fusion=single")
CLUSTER = SimulatedCluster(
    num_ranks=4,
    tensor_sizes=(500_000,) * 20,
    phases=(Phase(0.0, 1e-4, 125e6),),
    compute_seconds=0.1,
    select_seconds_per_element=1e-9,
    overheads={},
    prior_half_gain_ratio={},
    staleness={},
    staleness_steps={},
    dense_steps_to_target=100.0,
    optimizer=SGD,
)


def test_where_each_message_takes_long_it_is_left_to_priority_which_lets_several_cross_at_once():
    far = replace(CLUSTER, phases=(Phase(0.0, 0.08, 2.5e6),))
    assert best_buffers(PLAN, far).schedule == "priority"


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, ratio=1.0, collective="dense-ring")])
def test_where_bytes_take_long_several_cross_beside_computing(plan):
    found = best_buffers(plan, replace(CLUSTER, phases=(Phase(0.0, 1e-4, 40e6),)))
    assert found.fusion.planner != "single"
    assert (found.ratio, found.collective, found.source) == (plan.ratio, plan.collective, plan.source)
    assert not schedules[found.schedule].delays_updates


def test_all_networks_that_follow_each_other_count():
    later = (CLUSTER.phases[0], Phase(5.0, 0.08, 2.5e6))
    assert best_buffers(PLAN, replace(CLUSTER, phases=later)) == PLAN
