"""Simulated clusters drawn by a seed, and the static plans that the controller is judged against on them."""

from __future__ import annotations

import random
from dataclasses import replace
from math import exp, log

from trimtab.control.types import ControllerSettings
from trimtab.evaluation.judge.simulated_cluster import Phase, SimulatedCluster
from trimtab.evaluation.judge.simulated_run import static
from trimtab.plan.plan import FusionPlan, Plan, dense_plan
from trimtab_api.catalogue import COLLECTIVES

GIGABIT = 1e9 / 8
#: As the static plans of a grid: dense by ring, and values as they are, for smaller ones would spare all plans of a
#: ratio alike.
ADAPTIVE = ControllerSettings(wires=("float32",), dense_collectives=(), dense_wires=())
#: No step of these clusters hides its exchange, so that one buffer is best.
SINGLE = FusionPlan(planner="single")
GRID = [
    Plan(ratio=ratio, collective=collective, fusion=SINGLE)
    for ratio in (0.1, 0.033, 0.011, 0.004, 0.001)
    for collective in ("all-gather", "artopk-star-ring", "artopk-star-tree")
]

UPDATES = [
    replace(plan, source=f"update:steps={num_local}")
    for num_local in (1, 4, 16)
    for plan in (dense_plan(SINGLE), *(each for each in GRID if each.collective != "artopk-star-tree"))
]
"""Plans whose ranks step by themselves."""


def random_cluster(seed: int, num_ranks: int) -> SimulatedCluster:
    """A model, a machine and a network that changes every few seconds."""
    rng = random.Random(f"world {seed}")
    shared = (rng.uniform(0.9, 1.5), rng.uniform(0.05e-3, 1e-3), rng.uniform(1.0, 1.15), rng.uniform(0, 1e-9))
    wait = rng.uniform(0, 0.01)

    def near(value: float) -> float:
        return value * exp(rng.gauss(0, 0.08))

    phases, start = [], 0.0
    while start < 4000:
        phases.append(
            Phase(start, exp(rng.uniform(log(0.2e-3), log(30e-3))), exp(rng.uniform(log(0.1), log(1))) * GIGABIT)
        )
        start += rng.uniform(8, 40)
    half_gain = exp(rng.uniform(log(0.02), log(0.1)))
    staleness = exp(rng.uniform(log(0.003), log(0.1)))
    staleness_steps = exp(rng.uniform(log(1.2), log(5)))
    num_elements = round(exp(rng.uniform(log(4e6), log(30e6))))
    return SimulatedCluster(
        num_ranks=num_ranks,
        tensor_sizes=tuple(num_elements // 20 for _ in range(20)),
        phases=tuple(phases),
        compute_seconds=exp(rng.uniform(log(0.04), log(0.3))),
        select_seconds_per_element=rng.uniform(0.6e-9, 2e-9),
        overheads={name: (*map(near, shared), near(wait)) for name in COLLECTIVES},
        prior_half_gain_ratio={"all": half_gain, "artopk": half_gain * rng.uniform(1.1, 2.5)},
        staleness={"all": staleness, "artopk": staleness * rng.uniform(1.1, 1.9)},
        staleness_steps={"all": staleness_steps, "artopk": staleness_steps * rng.uniform(0.8, 1.9)},
        dense_steps_to_target=rng.uniform(150, 600),
        monitor_delay=rng.uniform(0.2, 1.5),
        fetch_all_passes=random.Random(f"cache {seed}").uniform(0.5, 2.5),
        first_step=1.5,
        drift=rng.uniform(0.0, 0.25),
    )


def dense() -> ControllerSettings:
    """Settings that send everything."""
    return static(dense_plan(SINGLE))
