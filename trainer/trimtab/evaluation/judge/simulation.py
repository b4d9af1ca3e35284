"""One cell of the judge's matrix in simulation: seconds to the target under each static plan and the controller."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import count
from math import exp
from statistics import median
from typing import TYPE_CHECKING

from trimtab_api.catalogue import COLLECTIVES, DENSE_COLLECTIVES
from trimtab_api.trainingjob.communication import LocalSteps

from trimtab.control.settings import sources_by_default
from trimtab.control.types import ControllerSettings
from trimtab.evaluation.judge.best_buffers import best_buffers
from trimtab.evaluation.judge.recorded import Recorded
from trimtab.evaluation.judge.simulated_cluster import Phase, SimulatedCluster
from trimtab.evaluation.judge.simulated_run import SimulatedRun, static
from trimtab.evaluation.judge.workloads import Workload
from trimtab.plan.names import GRID_LOCAL_STEPS, GRID_RATIOS
from trimtab.plan.plan import FusionPlan, Plan, dense_plan

if TYPE_CHECKING:
    from trimtab_netmon.emulate import Network

_SINGLE = FusionPlan(planner="single")
_RATIOS_OF_UPDATES = (0.1, 0.033, 0.011)
#: Simulated seconds after which a run is given up; none of the matrix's networks is so slow.
_LIMIT_SECONDS = 4000.0
_SEEDS = (1, 2, 3)
#: a, o, e, g, w of `SimulatedCluster.overheads`, as collectives over the emulator take them on two cores.
_OVERHEADS = (1.1, 0.3e-3, 1.05, 0.5e-9, 3e-3)
#: One deviation (log) of a batch's loss.
_LOSS_NOISE = 0.1
#: The same of one rank's computing in one step: that the last of four comes 6 to 10 ms after rank 0, where rank 0 is
#: not the last, in steps that compute for 35 to 100.
_JITTER = 0.1
LEFT_OUT = (
    "the simulator has recorded curves of dense and all-gather alone: collectives whose ranks share indices, other "
    "sparsifiers, values in fewer bits and DDP's hooks are left out there"
)


def grid() -> list[Plan]:
    """Return static plans: gradients at five ratios, updates of 1, 4 and 16 local steps at three, and dense ones."""
    whole = [replace(dense_plan(_SINGLE), collective=name) for name in DENSE_COLLECTIVES]

    def sparse(ratio: float) -> Plan:
        return Plan(ratio=ratio, collective="all-gather", fusion=_SINGLE)

    updates = [
        replace(plan, source=f"update:steps={steps}")
        for steps in GRID_LOCAL_STEPS
        for plan in (*whole, *map(sparse, _RATIOS_OF_UPDATES))
    ]
    return [*whole, *map(sparse, GRID_RATIOS), *updates]


@dataclass(frozen=True)
class SimulatedCell:
    """Simulated seconds to the target."""

    adaptive: float
    """The median of three seeds."""
    static: dict[str, float]
    """Seconds by plan, the fastest first."""
    in_best_buffers: str
    """The first of them that sends gradients, in the buffers and by the schedule that suit it best."""

    def first(self, count: int, *, besides: str) -> list[str]:
        """Return the fastest static plans but for ``besides``, one of each ratio and source, however it is summed."""
        kinds: dict[tuple[float, str], str] = {}
        for name in self.static:
            plan = Plan.parse(name)
            kinds.setdefault((plan.ratio, plan.source), name)
        return [name for name in kinds.values() if name != besides][:count]


def simulate(workload: Workload, network: Network, recorded: Recorded) -> SimulatedCell:
    """Simulate all plans of the grid, and the controller free to choose among what is recorded."""
    cluster = cluster_of(workload, network, recorded)

    def seconds(settings: ControllerSettings, seed: int) -> float:
        return SimulatedRun(cluster, settings, seed).until_target(_LIMIT_SECONDS).seconds

    adaptive = settings_of(workload, recorded)
    static_seconds = {plan.name: seconds(static(plan), _SEEDS[0]) for plan in grid() if recorded.knows(plan)}
    fastest_first = dict(sorted(static_seconds.items(), key=lambda item: item[1]))
    gradients = next(plan for plan in map(Plan.parse, fastest_first) if not plan.local_steps)
    return SimulatedCell(
        median(seconds(adaptive, seed) for seed in _SEEDS), fastest_first, best_buffers(gradients, cluster).name
    )


def settings_of(workload: Workload, recorded: Recorded) -> ControllerSettings:
    """Return the settings of `trimtab.attach`, without collectives and sources that no curve was recorded of."""
    most = min(LocalSteps().max, recorded.most_local_steps)
    updates = sources_by_default(workload.optimizer, most) if most else ()
    return ControllerSettings(
        collectives=("all-gather",), sources_in_batches=updates, wires=("float32",), dense_wires=()
    )


def cluster_of(workload: Workload, network: Network, recorded: Recorded) -> SimulatedCluster:
    """Make a machine like that of the curves, on a network; the overheads of software are drawn by its name."""
    rng = random.Random(f"judge {workload.name}")
    tensors = 20
    return SimulatedCluster(
        num_ranks=workload.job.spec.num_ranks,
        tensor_sizes=tuple(recorded.num_elements // tensors for _ in range(tensors)),
        phases=_phases(network),
        compute_seconds=recorded.compute_seconds,
        select_seconds_per_element=1e-9,
        overheads={name: _near(rng) for name in COLLECTIVES},
        prior_half_gain_ratio={"all": workload.prior_half_gain_ratio},
        staleness={},
        staleness_steps={},
        dense_steps_to_target=recorded.dense_steps,
        first_step=1.5,
        drift=0.1,
        jitter=_JITTER,
        pace=recorded.pace,
        loss=recorded.loss,
        loss_noise=_LOSS_NOISE,
        optimizer=workload.optimizer,
        evaluation_seconds=workload.evaluation_seconds,
    )


def _near(rng: random.Random) -> tuple[float, float, float, float, float]:
    a, o, e, g, w = (value * exp(rng.gauss(0, 0.08)) for value in _OVERHEADS)
    return a, o, e, g, w


def _phases(network: Network) -> tuple[Phase, ...]:
    phases: list[Phase] = []
    start = 0.0
    for turn in count():
        for each in network.phases:
            phases.append(Phase(start, each.latency, each.bandwidth))
            start += each.duration
        if not network.repeat or start > _LIMIT_SECONDS:
            break
        assert turn < _LIMIT_SECONDS, "a phase takes time"
    return tuple(phases)
