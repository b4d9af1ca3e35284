"""A virtual training run around the real controller: a clock, a monitor and a model that converges.

What is true (`SimulatedCluster`) is hidden from the controller, which sees noisy measurements of it, late. No time
passes but the virtual clock's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import exp, inf
from statistics import fmean
from typing import Any

from trimtab.control.factory import make_controller
from trimtab.control.types import (
    Action,
    ControllerSettings,
    ModelFacts,
    RunTrials,
    StepReport,
    SwitchPlan,
    TrialReport,
)
from trimtab.evaluation.judge.simulated_cluster import SimulatedCluster, family
from trimtab.evaluation.judge.simulated_monitor import SimulatedMonitor
from trimtab.plan.plan import ANNOUNCE_STEPS_BEFORE_SYNC, Plan, dense_plan

#: Seconds for which a machine's speed stays about what it is.
_DRIFT_SECONDS = 5.0


@dataclass
class Outcome:
    """The end of a run."""

    seconds: float
    exploration_seconds: float
    num_changes: int
    log: list[dict[str, Any]] = field(default_factory=list)


class SimulatedRun:
    """One training run in a cluster, under a controller (a static policy included)."""

    def __init__(self, cluster: SimulatedCluster, settings: ControllerSettings, seed: int) -> None:
        self.cluster = cluster
        self.now = 0.0
        self.controller = make_controller(
            settings,
            ModelFacts(cluster.num_elements, cluster.tensor_sizes, cluster.num_ranks, cluster.optimizer),
            seed=seed,
        )
        self.plan = self.controller.plan
        self._is_steered = settings.policy == "adaptive"
        """A static plan stays what it is, whatever its controller would hear: it hears of nothing."""
        self._rng = random.Random(f"noise {seed}")
        self._drift_rng = random.Random(f"drift {seed}")
        self._loss_rng = random.Random(f"loss {seed}")
        self._ranks_rng = random.Random(f"ranks {seed}")
        self._drift = 0.0
        self._drifted_at = 0.0
        self._last_plan: Plan | None = None
        self._monitor = SimulatedMonitor(seed)
        self._residual = 0.0
        self.step = 0
        self.progress = 0.0
        self._behind = 0.0
        self.exploration_seconds = 0.0
        self.num_changes = 0
        self._waiting: Action | None = None
        """Trials that the controller has asked for within a round."""
        self.log: list[dict[str, Any]] = []

    def until_target(self, limit: float = 4000.0) -> Outcome:
        """Train until the target accuracy (or the limit) is reached."""
        while self.progress - self._behind < self.cluster.dense_steps_to_target and self.now < limit:
            self.advance()
        return Outcome(self.now, self.exploration_seconds, self.num_changes, self.log)

    def advance(self) -> None:
        """Run one turn of the loop: monitor, controller, step."""
        if self._is_steered:
            self._monitor.advance(self.now, self.cluster, self.controller)
            action, self._waiting = self._waiting or self._ask(), None
            if isinstance(action, RunTrials):
                self._trials(action)
                return
        # All ranks hear of a new plan during one step, and train under it from the next; before the first, at once.
        plan = self.plan if self.step > 0 else self.controller.plan
        self.plan = self.controller.plan
        self.log += self.controller.log.drain()
        self._change_source(plan)
        report = self._round(plan) if plan.local_steps > 1 else self._step_of(plan)
        if self._is_steered:
            self._monitor.advance(self.now, self.cluster, self.controller)
            if report is not None:
                self.controller.observe_step(report, self.now)

    def _ask(self) -> Action:
        """Return what the controller wants, between two steps."""
        steps_left_in_epoch = self.cluster.steps_per_epoch - self.step % self.cluster.steps_per_epoch
        action = self.controller.next_action(self.now, steps_left_in_epoch)
        self.num_changes += isinstance(action, SwitchPlan)
        self._monitor.has_news = False
        return action

    def _step_of(self, plan: Plan) -> StepReport:
        """Take a step that is exchanged by itself."""
        gain, self._residual = self._error_feedback(plan, self._residual)
        report = self._measure(plan, gain)
        loss = self._take_step(plan)
        self.now += report.step_seconds
        return replace(report, loss=loss)

    def _round(self, plan: Plan) -> StepReport | None:
        """Take local steps and exchange them; None where the exchange is another plan's, announced in time."""
        slowness, ends_by, losses = self._slowness(plan), plan, []
        arrivals = self._arrivals(plan, slowness)
        for num_left in reversed(range(plan.local_steps)):
            losses.append(self._take_step(plan))
            self.now += max(arrivals) / plan.local_steps
            if num_left and self._is_steered:
                self._monitor.advance(self.now, self.cluster, self.controller)
                if self._monitor.has_news and self._waiting is None and self.controller.plan == ends_by:
                    action = self._ask()
                    self._waiting = action if isinstance(action, RunTrials) else None
                if (
                    num_left == ANNOUNCE_STEPS_BEFORE_SYNC
                    and plan.accepts_early_announcement
                    and self.controller.plan.ends_rounds
                ):
                    ends_by = self.controller.plan
        self.plan = self.controller.plan  # what was decided in the round is heard of at its end
        if ends_by != plan:
            slowness = self._slowness(ends_by)
        gain, self._residual = self._error_feedback(ends_by, self._residual)
        compress, sync = self._exchange_seconds(ends_by, slowness)
        self.now += compress + sync
        if ends_by != plan:
            return None
        told = [each for each in losses if each is not None]
        report = self._report(plan, gain, arrivals, compress, sync)
        return replace(report, loss=fmean(told) if told else None)

    def _take_step(self, plan: Plan) -> float | None:
        """Advance the model by a step; return the mean over ranks of its batches' losses, where they are told."""
        self.step += 1
        loss = self._loss(self.cluster.loss) if self._is_steered and self.cluster.loss is not None else None
        self._progress(plan)
        return loss

    def _change_source(self, plan: Plan) -> None:
        """Exchange what ranks exchange once where updates give way to gradients."""
        last = self._last_plan
        if last is None or not last.local_steps or plan.local_steps:
            return
        states = 1 if self.cluster.optimizer.kind == "sgd" else 2
        self.now += (states + (not last.is_dense)) * self.cluster.sync_seconds(
            dense_plan(), self.cluster.network(self.now)
        )

    def _loss(self, curve: Callable[[float], float]) -> float:
        """Return the mean over ranks of the next batches' losses."""
        cluster, rng = self.cluster, self._loss_rng
        true = curve(max(0.0, self.progress - self._behind))
        off = [rng.gauss(0, 1) + (3 if rng.random() < 1 / 30 else 0) for _ in range(cluster.num_ranks)]
        return fmean(true * exp(cluster.loss_noise * each) for each in off)

    def _progress(self, plan: Plan) -> None:
        if self.cluster.pace is not None:
            self.progress += self.cluster.pace(plan, self.progress)
            return
        size = self._residual**0.5
        self.progress += 1 / (1 + self.cluster.staleness.get(family(plan), 0.0) * size)
        self._behind = self.cluster.staleness_steps.get(family(plan), 0.0) * size**1.5

    def _error_feedback(self, plan: Plan, residual: float) -> tuple[float, float]:
        """Return the gain of a step and the residual after it, as squared norms in those of one step's gradient.

        With the steady gain the residual keeps its size. While it is far from there, more gets through: what is new,
        or long overdue, is concentrated in fewer elements.
        """
        if plan.is_dense:
            return 1.0, 0.0
        steady = self.cluster.steady_gain(plan)
        settled = min(2.0, residual / (1 / steady - 1))
        gain = steady ** (1 - 0.4 * abs(1 - settled)) * exp(self._rng.gauss(0, 0.05))
        gain = min(0.99, gain)
        return gain, (residual + 1) * (1 - gain)

    def _measure(self, plan: Plan, gain: float) -> StepReport:
        slowness = self._slowness(plan)
        arrivals = self._arrivals(plan, slowness)
        return self._report(plan, gain, arrivals, *self._exchange_seconds(plan, slowness))

    def _slowness(self, plan: Plan) -> float:
        slowness = exp(self._wander())
        if plan != self._last_plan:  # buffers are made anew, and connections have yet to speed up
            slowness, self._last_plan = slowness * self.cluster.first_step, plan
        return slowness

    def _noisy(self, slowness: float) -> float:
        return slowness * exp(self._rng.gauss(0, self.cluster.noise))

    def _arrivals(self, plan: Plan, slowness: float) -> tuple[float, ...]:
        """Return how long each rank computes until it comes to the next exchange, in seconds."""
        cluster, num_steps = self.cluster, max(1, plan.local_steps)
        compute = cluster.compute_seconds * self._noisy(slowness) * (2.0 if self.step == 0 else 1.0)
        evaluating = slowness * cluster.evaluating_seconds(self.step, num_steps)
        ranks = (self._steps_of_a_rank(num_steps) for _ in range(cluster.num_ranks))
        return tuple(compute * steps + (evaluating if rank == 0 else 0.0) for rank, steps in enumerate(ranks))

    def _steps_of_a_rank(self, count: int) -> float:
        """Return how many mean steps a rank could compute in the time that so many take it."""
        jitter = self.cluster.jitter
        return sum(exp(self._ranks_rng.gauss(0, jitter)) for _ in range(count)) if jitter else float(count)

    def _exchange_seconds(self, plan: Plan, slowness: float) -> tuple[float, float]:
        """Return the seconds of compressing, and of the collective, on the network of this moment."""
        cluster = self.cluster
        compress = cluster.compress_seconds(plan) * self._noisy(slowness)
        sync = cluster.sync_seconds(plan, cluster.network(self.now)) * self._noisy(slowness)
        return compress, sync * (1.8 if self._rng.random() < 0.03 else 1.0)

    def _report(self, plan: Plan, gain: float, arrivals: tuple[float, ...], compress: float, sync: float) -> StepReport:
        num_steps = max(1, plan.local_steps)
        compute = max(arrivals) / num_steps
        return StepReport(
            step=self.step,
            plan=plan,
            step_seconds=compute + (compress + sync) / num_steps,
            compute_seconds=compute,
            compress_seconds=compress,
            collective_seconds=sync,
            num_bytes=0,
            num_messages=0,
            gain=gain,
            residual_norm=0.0 if plan.is_dense else (1 / gain - 1) ** 0.5,
            finite=True,
            steps_per_epoch=inf,
            arrival_seconds=arrivals,
        )

    def _wander(self) -> float:
        """Return the logarithm of how slow the machine is by now: other work comes and goes."""
        kept = exp((self._drifted_at - self.now) / _DRIFT_SECONDS)
        self._drifted_at = self.now
        step = self._drift_rng.gauss(0, self.cluster.drift)
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


def static(plan: Plan) -> ControllerSettings:
    """Return settings that never change the plan."""
    return ControllerSettings(policy="static", static_plan=plan)
