"""A controller by itself, on a quiet simulated cluster or told step by step what happens."""

from __future__ import annotations

from simulator import GIGABIT
from trimtab.control.factory import make_controller
from trimtab.control.types import ControllerSettings, ModelFacts, StepReport, SwitchPlan
from trimtab.evaluation.judge.simulated_cluster import Phase, SimulatedCluster
from trimtab_api.catalogue import COLLECTIVES
from trimtab_api.netmon.view import NetworkView

FACTS = ModelFacts(10_000_000, (4_000_000, 6_000_000), 4)
FAST, SLOW = (0.5e-3, 10 * GIGABIT), (2e-3, 0.1 * GIGABIT)


def cluster(*phases, num_ranks=4, num_elements=10_000_000, **changes):
    """A quiet, exactly modelled cluster; ``phases`` are (start, latency, bandwidth)."""
    return SimulatedCluster(
        num_ranks=num_ranks,
        tensor_sizes=(num_elements // 2, num_elements // 2),
        phases=tuple(Phase(*phase) for phase in phases),
        compute_seconds=0.1,
        select_seconds_per_element=1e-9,
        overheads=dict.fromkeys(COLLECTIVES, (1.0, 2e-4, 1.05, 5e-10, 2e-3)),
        prior_half_gain_ratio={"all": 0.05, "artopk": 0.08},
        staleness={"all": 0.02, "artopk": 0.03},
        staleness_steps={"all": 2.3, "artopk": 2.3},
        dense_steps_to_target=200,
        **changes,
    )


def decisions(run, changed=True):
    return [line for line in run.log if line["record"] == "decision" and (line["changed"] or not changed)]


def train(run, seconds):
    end = run.now + seconds
    while run.now < end:
        run.advance()
    return run


def report(step, plan, finite=True, residual_norm=1.0, collective=0.1, step_seconds=0.2):
    return StepReport(step, plan, step_seconds, 0.09, 0.01, collective, 0, 0, 0.3, residual_norm, finite)


def sparse_controller():
    controller = make_controller(ControllerSettings(), FACTS)
    controller.observe_network(NetworkView(1, *SLOW), 0.0)
    assert isinstance(controller.next_action(0.0, 100), SwitchPlan)
    return controller
