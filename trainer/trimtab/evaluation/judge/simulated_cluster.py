"""Everything that is true of one simulated training: machine, network, what compression costs it. No torch, no clock.

Seconds and bytes throughout. A controller in it (`trimtab.evaluation.judge.simulated_run`) sees only noisy
measurements of this.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import exp

from trimtab_api.catalogue import Cost

from trimtab.control.types import OptimizerFamily
from trimtab.plan.plan import Plan

#: The same as in the judge's workloads.
_STEPS_BETWEEN_EVALUATIONS = 5
SGD = OptimizerFamily("SGD", "sgd")


@dataclass(frozen=True)
class Phase:
    """A network from some moment on."""

    start: float
    latency: float
    bandwidth: float


@dataclass(frozen=True)
class SimulatedCluster:
    """Everything true about one run."""

    num_ranks: int
    tensor_sizes: tuple[int, ...]
    phases: tuple[Phase, ...]
    """Phases of the network, by their starts."""
    compute_seconds: float
    select_seconds_per_element: float
    overheads: dict[str, tuple[float, float, float, float, float]]
    """a, o, e, g, w by collective."""
    prior_half_gain_ratio: dict[str, float]
    """Ratio at which half of the error-fed gradient gets through, by family."""
    staleness: dict[str, float]
    """Share by which a residual as large as what is sent slows every step down, by family."""
    staleness_steps: dict[str, float]
    """Steps by which a residual as large as what is sent keeps training behind, by family; goes with power 1.5."""
    dense_steps_to_target: float
    steps_per_epoch: int = 90
    monitor_delay: float = 0.5
    monitor_noise: float = 0.03
    noise: float = 0.05
    fetch_all_passes: float = 1.4
    """Cost of fetching every cache line in no order, in passes over them all in order."""
    first_step: float = 1.0
    """Factor of the time that the first step under a plan takes."""
    drift: float = 0.0
    """Deviation (log) of the machine's speed from its mean, with a memory of some seconds."""
    pace: Callable[[Plan, float], float] | None = None
    """Dense's steps that a step is worth under a plan, by progress; instead of `staleness` and `staleness_steps`."""
    loss: Callable[[float], float] | None = None
    """The loss after so much progress, in dense's steps; None: the script tells none."""
    loss_noise: float = 0.05
    """One deviation (log) of a batch's loss; every thirtieth batch is off by three of them more."""
    jitter: float = 0.0
    """One deviation (log) of what one rank computes for in one step, whatever the others do."""
    optimizer: OptimizerFamily = SGD
    evaluation_seconds: float = 0.0
    """Seconds of rank 0's evaluation after every fifth step, while the others wait for it."""

    @property
    def num_elements(self) -> int:
        """Elements of the model."""
        return sum(self.tensor_sizes)

    def network(self, now: float) -> Phase:
        """Return the network at a moment, in seconds."""
        return self.phases[bisect_right(self.phases, now, key=lambda phase: phase.start) - 1]

    def sync_seconds(self, plan: Plan, phase: Phase) -> float:
        """Return the seconds of a plan's exchange in a phase of the network."""
        cost = _closed_form(plan, self.num_elements, self.num_ranks)
        a, o, e, g, w = self.overheads[plan.collective]
        return a * cost.messages * phase.latency + o * cost.messages + (e / phase.bandwidth + g) * cost.bytes + w

    def evaluating_seconds(self, first_step: int, num_steps: int) -> float:
        """Return the seconds that rank 0's evaluations take in so many steps."""
        before, after = (step // _STEPS_BETWEEN_EVALUATIONS for step in (first_step, first_step + num_steps))
        return self.evaluation_seconds * (after - before)

    def compress_seconds(self, plan: Plan) -> float:
        """Return the seconds of a plan's compression."""
        if plan.is_dense:
            return 0.0
        arriving = plan.ratio * (1 if plan.shares_indices else self.num_ranks)
        passes = 1 + self.fetch_all_passes * (1 - exp(-16 * arriving))
        return self.num_elements * self.select_seconds_per_element * passes

    def steady_gain(self, plan: Plan) -> float:
        """Return the gain of a plan once its residual keeps its size."""
        if plan.is_dense:
            return 1.0
        return plan.ratio / (plan.ratio + self.prior_half_gain_ratio[family(plan)])


@lru_cache(maxsize=1024)
def _closed_form(plan: Plan, num_elements: int, num_ranks: int) -> Cost:
    return sum(plan.buffer_costs(num_elements, num_ranks), Cost(0, 0))


def family(plan: Plan) -> str:
    """Return what plans of like gains and staleness have in common: "all" (all-gather), "artopk" or "dense"."""
    return plan.collective.split("-")[0]
