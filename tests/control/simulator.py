"""A virtual training run around the real controller: a clock, a network, a monitor and a model that converges.

What is true (overheads, selection times, gains, how much staleness costs) is drawn from a seed and hidden from the
controller, which sees noisy measurements of it, late. No time passes but the virtual clock's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import exp, log

from trimtab.control.controller import Controller
from trimtab.control.types import (
    Adopt,
    ControllerSettings,
    ModelFacts,
    NetworkView,
    OptimizerFamily,
    RunTrials,
    StepReport,
    TrialReport,
)
from trimtab.plan import FusionPlan, Plan, dense_plan
from trimtab_api.catalogue import COLLECTIVES, Cost

GIGABIT = 1e9 / 8
#: Seconds for which a machine's speed stays about what it is.
_DRIFT_SECONDS = 5.0
SGD = OptimizerFamily("SGD", "sgd")
#: No step of a world hides its exchange, so that one buffer is best.
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


@dataclass(frozen=True)
class Phase:
    """A network from some moment on."""

    start: float
    latency: float
    bandwidth: float


@dataclass(frozen=True)
class World:
    """Everything true about one run."""

    num_ranks: int
    tensor_sizes: tuple[int, ...]
    phases: tuple[Phase, ...]
    compute_seconds: float
    select_seconds_per_element: float
    overheads: dict[str, tuple[float, float, float, float, float]]
    """a, o, e, g, w by collective."""
    half_gain_ratio: dict[str, float]
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
    """What fetching every cache line in no order costs, in passes over them all in order."""
    first_step: float = 1.0
    """How many times as long the first step under a plan takes."""
    drift: float = 0.0
    """How far (log, one deviation) the machine's speed wanders from its mean, with a memory of some seconds."""
    pace: Callable[[Plan, float], float] | None = None
    """Dense's steps that a step is worth under a plan, by progress; instead of `staleness` and `staleness_steps`."""
    optimizer: OptimizerFamily = SGD

    @property
    def num_elements(self) -> int:
        return sum(self.tensor_sizes)

    def network(self, now: float) -> Phase:
        return max((phase for phase in self.phases if phase.start <= now), key=lambda phase: phase.start)

    def sync_seconds(self, plan: Plan, phase: Phase) -> float:
        cost = sum(plan.buffer_costs(self.num_elements, self.num_ranks), Cost(0, 0))
        a, o, e, g, w = self.overheads[plan.collective]
        return a * cost.messages * phase.latency + o * cost.messages + (e / phase.bandwidth + g) * cost.bytes + w

    def compress_seconds(self, plan: Plan) -> float:
        if plan.is_dense:
            return 0.0
        arriving = plan.ratio * (1 if plan.shares_indices else self.num_ranks)
        passes = 1 + self.fetch_all_passes * (1 - exp(-16 * arriving))
        return self.num_elements * self.select_seconds_per_element * passes

    def steady_gain(self, plan: Plan) -> float:
        if plan.is_dense:
            return 1.0
        return plan.ratio / (plan.ratio + self.half_gain_ratio[family(plan)])


def family(plan: Plan) -> str:
    """What plans have in common whose gains and staleness are alike: "all" (all-gather), "artopk" or "dense"."""
    return plan.collective.split("-")[0]


def random_world(seed: int, num_ranks: int) -> World:
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
    return World(
        num_ranks=num_ranks,
        tensor_sizes=tuple(num_elements // 20 for _ in range(20)),
        phases=tuple(phases),
        compute_seconds=exp(rng.uniform(log(0.04), log(0.3))),
        select_seconds_per_element=rng.uniform(0.6e-9, 2e-9),
        overheads={name: (*map(near, shared), near(wait)) for name in COLLECTIVES},
        half_gain_ratio={"all": half_gain, "artopk": half_gain * rng.uniform(1.1, 2.5)},
        staleness={"all": staleness, "artopk": staleness * rng.uniform(1.1, 1.9)},
        staleness_steps={"all": staleness_steps, "artopk": staleness_steps * rng.uniform(0.8, 1.9)},
        dense_steps_to_target=rng.uniform(150, 600),
        monitor_delay=rng.uniform(0.2, 1.5),
        fetch_all_passes=random.Random(f"cache {seed}").uniform(0.5, 2.5),
        first_step=1.5,
        drift=rng.uniform(0.0, 0.25),
    )


@dataclass
class Outcome:
    """How a run went."""

    seconds: float
    exploration_seconds: float
    num_changes: int
    log: list[dict] = field(default_factory=list)


class Run:
    """One training run in a world, under a controller (a static policy included)."""

    def __init__(self, world: World, settings: ControllerSettings, seed: int) -> None:
        self.world = world
        self.now = 0.0
        self.controller = Controller(
            settings,
            ModelFacts(world.num_elements, world.tensor_sizes, world.num_ranks, world.optimizer),
            seed=seed,
        )
        self.plan = self.controller.plan
        self._rng = random.Random(f"noise {seed}")
        self._monitor_rng = random.Random(f"monitor {seed}")
        self._drift_rng = random.Random(f"drift {seed}")
        self._drift = 0.0
        self._drifted_at = 0.0
        self._last_plan: Plan | None = None
        self._next_view = 0.0
        self._probe_at: float | None = None
        self._bandwidth_seen: float | None = None
        self._next_bandwidth = 0.0
        self._latency_seen: float | None = None
        self._revision = 0
        self._residual = 0.0
        self.step = 0
        self.progress = 0.0
        self._behind = 0.0
        self.exploration_seconds = 0.0
        self.num_changes = 0
        self.log: list[dict] = []

    def until_target(self, limit: float = 4000.0) -> Outcome:
        """Train until the target accuracy (or the limit) is reached."""
        while self.progress - self._behind < self.world.dense_steps_to_target and self.now < limit:
            self.advance()
        return Outcome(self.now, self.exploration_seconds, self.num_changes, self.log)

    def advance(self) -> None:
        """One turn of the loop: monitor, controller, step."""
        self._monitor()
        steps_left_in_epoch = self.world.steps_per_epoch - self.step % self.world.steps_per_epoch
        action = self.controller.next_action(self.now, steps_left_in_epoch)
        if isinstance(action, RunTrials):
            self._trials(action)
            return
        # All ranks hear of a new plan during one step, and train under it from the next; before the first, at once.
        plan = self.plan if self.step > 0 else self.controller.plan
        self.plan = self.controller.plan
        if isinstance(action, Adopt):
            self.num_changes += 1
        self.log += self.controller.log.drain()
        gain, self._residual = self._error_feedback(plan, self._residual)
        report = self._measure(plan, gain)
        for _ in range(max(1, plan.local_steps)):  # the controller hears of a round of local steps as a whole
            self.step += 1
            self._progress(plan)
            self.now += report.step_seconds
        self._monitor()
        self.controller.observe_step(report, self.now)

    def _progress(self, plan: Plan) -> None:
        if self.world.pace is not None:
            self.progress += self.world.pace(plan, self.progress)
            return
        size = self._residual**0.5
        self.progress += 1 / (1 + self.world.staleness.get(family(plan), 0.0) * size)
        self._behind = self.world.staleness_steps.get(family(plan), 0.0) * size**1.5

    def _error_feedback(self, plan: Plan, residual: float) -> tuple[float, float]:
        """Gain of a step and the residual after it; residuals are squared norms, in those of one step's gradient.

        With the steady gain the residual keeps its size. While it is far from there, more gets through: what is new,
        or long overdue, is concentrated in fewer elements.
        """
        if plan.is_dense:
            return 1.0, 0.0
        steady = self.world.steady_gain(plan)
        settled = min(2.0, residual / (1 / steady - 1))
        gain = steady ** (1 - 0.4 * abs(1 - settled)) * exp(self._rng.gauss(0, 0.05))
        gain = min(0.99, gain)
        return gain, (residual + 1) * (1 - gain)

    def _measure(self, plan: Plan, gain: float) -> StepReport:
        world, slowness = self.world, exp(self._wander())
        if plan != self._last_plan:  # buffers are made anew, and connections have yet to speed up
            slowness, self._last_plan = slowness * world.first_step, plan
        noisy = lambda: slowness * exp(self._rng.gauss(0, world.noise))  # noqa: E731
        compute = world.compute_seconds * noisy() * (2.0 if self.step == 0 else 1.0)
        compress = world.compress_seconds(plan) * noisy()
        sync = world.sync_seconds(plan, world.network(self.now)) * noisy() * (1.8 if self._rng.random() < 0.03 else 1.0)
        return StepReport(
            step=self.step,
            plan=plan,
            step_seconds=compute + (compress + sync) / max(1, plan.local_steps),
            compute_seconds=compute,
            compress_seconds=compress,
            collective_seconds=sync,
            num_bytes=0,
            num_messages=0,
            gain=gain,
            residual_norm=0.0 if plan.is_dense else (1 / gain - 1) ** 0.5,
            finite=True,
            in_batches=True,
        )

    def _wander(self) -> float:
        """Logarithm of how slow the machine is by now: other work comes and goes."""
        kept = exp((self._drifted_at - self.now) / _DRIFT_SECONDS)
        self._drifted_at = self.now
        step = self._drift_rng.gauss(0, self.world.drift)
        self._drift = kept * self._drift + (1 - kept**2) ** 0.5 * step
        return self._drift

    def _trials(self, action: RunTrials) -> None:
        reports, began = [], self.now
        for plan in action.plans:
            start, residual = self.now, self._residual
            for _ in range(action.iterations):
                gain, residual = self._error_feedback(plan, residual)
                report = self._measure(plan, gain)
                self.now += report.step_seconds
            self.now += 0.05
            reports.append(
                TrialReport(
                    plan=plan,
                    step_seconds=report.step_seconds,
                    compute_seconds=report.compute_seconds,
                    compress_seconds=report.compress_seconds,
                    collective_seconds=report.collective_seconds,
                    num_bytes=0,
                    num_messages=0,
                    gain=gain,
                    num_steps=action.iterations,
                    wall_seconds=self.now - start,
                )
            )
        self.exploration_seconds += self.now - began
        self.controller.observe_trials(reports, self.now)

    def _monitor(self) -> None:
        """Latency every second, bandwidth every four (sooner when latency jumps, or on request); late and noisy."""
        if self._probe_at is None and self.controller.drift.asks_to_measure(self.now):
            self._probe_at = self.now + self.world.monitor_delay
            self._next_view = min(self._next_view, self._probe_at)
            self._next_bandwidth = self._probe_at
        while self._next_view <= self.now:
            at = self._next_view
            was_asked_for = self._probe_at is not None and at >= self._probe_at
            if was_asked_for:
                self._probe_at = None
            truth = self.world.network(max(0.0, at - self.world.monitor_delay))
            noisy = lambda: exp(self._monitor_rng.gauss(0, self.world.monitor_noise))  # noqa: E731
            latency = truth.latency * noisy()
            jumped = self._latency_seen is None or abs(log(latency / self._latency_seen)) > 0.2
            if self._bandwidth_seen is None or jumped or at >= self._next_bandwidth:
                self._bandwidth_seen = truth.bandwidth * noisy()
                self._next_bandwidth = at + 4.0
            self._latency_seen = latency
            self._revision += 1
            self.controller.observe_network(NetworkView(self._revision, latency, self._bandwidth_seen), at)
            if was_asked_for:
                self.controller.drift.measured()
            self._next_view = at + 1.0


def static(plan: Plan) -> ControllerSettings:
    """Settings that never change the plan."""
    return ControllerSettings(policy="static", static_plan=plan)


def dense() -> ControllerSettings:
    """Settings that send everything."""
    return static(dense_plan(SINGLE))
