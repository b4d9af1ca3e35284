"""Finds the buffers and the schedule of a static plan's shortest steps, by the timeline that all planners share.

The judge's simulator adds up a step's parts, so that there every fusion plan and schedule is alike. Real runs are not.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from statistics import fmean

from trimtab_api.catalogue import planners, schedules

from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.planning import FusionPlanning
from trimtab.control.types import ModelFacts
from trimtab.evaluation.judge.simulated_cluster import SimulatedCluster
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import ModuleTimes, Profile

#: The forward pass's share of computing, as layers of most models have it.
_FORWARD = 1 / 3


def best_buffers(plan: Plan, cluster: SimulatedCluster) -> Plan:
    """Return ``plan``, which sends gradients, in the buffers and by the schedule of its shortest mean step.

    Over the networks that follow each other, planned for the first, as a static plan is. Of schedules that update in
    each step, and of planners that ask for nothing. Where several are alike, the plan as it is, or else the first.
    """
    facts = ModelFacts(
        cluster.num_elements, cluster.tensor_sizes, cluster.num_ranks, cluster.optimizer, shares_interface=True
    )
    predictor = Predictor(facts, cluster.compute_seconds)
    predictor.observe_profile(_even_profile(plan, cluster))
    networks = list(dict.fromkeys((phase.latency, 1 / phase.bandwidth) for phase in cluster.phases))  # some repeat
    planning = FusionPlanning(predictor, facts, (plan.ratio,))
    planning.renew(*networks[0])

    def mean_step(named: Plan) -> float:
        axes = named.ratio, named.collective, named.sparsifier, named.fusion.planner, named.schedule
        made = planning.plan(*axes)
        return fmean(predictor.predict(made, *network).step_seconds for network in networks)

    others = [
        replace(plan, fusion=FusionPlan(planner=planner.name), schedule=schedule.name)
        for planner in planners.rows()
        if not any(option.default is None for option in planner.options)
        for schedule in schedules.rows()
        if not schedule.delays_updates
    ]
    return min([plan, *others], key=mean_step)


def _even_profile(plan: Plan, cluster: SimulatedCluster) -> Profile:
    """Make the profile of a model whose tensors, each a module, take as long to compute as they are large."""
    num_elements, sizes = cluster.num_elements, cluster.tensor_sizes
    seconds = [cluster.compute_seconds * size / num_elements for size in sizes]
    modules = [
        ModuleTimes(f"{number}", start, stop, _FORWARD * each, (1 - _FORWARD) * each)
        for number, ((start, stop), each) in enumerate(
            zip(pairwise(accumulate(sizes, initial=0)), seconds, strict=True)
        )
    ]
    backward = tuple((1 - _FORWARD) * each for each in seconds)
    lead = _FORWARD * cluster.compute_seconds
    return Profile(0, 1, plan, lead, backward, tuple(reversed(modules)), (), None, None, None)
