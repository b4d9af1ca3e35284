"""The adaptive controller: observe, and say what to do next.

    network views ──▶ NetworkEstimator ─┐                                                 ┌──▶ KeepGoing
    step reports ───▶ Learner ──────────┼──▶ guard? ──▶ trigger? ──▶ trials? ──▶ choose ──┼──▶ RunTrials
    profiles ───────▶ Predictor ────────┘                                                 └──▶ SwitchPlan

Every change of plan follows a change of network, of gain or of what steps are seen to bring, the warm-up's end, a
guard, or a change that turned out slower than the plan before; and is predicted to reach the target sooner than the
plan before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trimtab.control.controller import Controller
from trimtab.control.cost_model.convergence import reads_gain
from trimtab.control.decision import Prediction
from trimtab.control.experiments import Exploration
from trimtab.control.fallback import DenseFallback
from trimtab.control.monitors import guards
from trimtab.control.monitors.network import UNKNOWN_NETWORK, Network, NetworkChange
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.search import candidates, selection
from trimtab.control.search.search import preload
from trimtab.control.search.selection import Choice, banned_of
from trimtab.control.triggers import Triggers, warmup_steps
from trimtab.control.types import Action, ControllerSettings, KeepGoing, ModelFacts, RunTrials, StepReport, TrialReport
from trimtab.plan.profile import Profile
from trimtab.run_files.schema import Trigger


class AdaptiveController(Controller):
    """Keeps choosing the plan, by what is measured of the network and of training."""

    def __init__(self, settings: ControllerSettings, facts: ModelFacts, seed: int = 0) -> None:
        """See `Controller`; ``seed`` is that of searches."""
        super().__init__(settings, facts, seed)
        self._loop_steps = 0.0  # of the script's loop over ``session.batches``; 0 where it is over something else
        self._triggers = Triggers()
        self._fallback = DenseFallback()
        self._experiments = Exploration(self._learner.predictor)

    @property
    def can_run_trials(self) -> bool:
        """See `Controller.can_run_trials`."""
        return self._settings.exploration_share > 0

    @property
    def offers_rounds(self) -> bool:
        """See `Controller.offers_rounds`."""
        return bool(self._settings.sources_in_batches)

    def preload(self) -> None:
        """Import now what decisions need, a second or two."""
        preload()

    # What is observed -------------------------------------------------------------------------------

    def _learn(self, report: StepReport, now: float) -> None:
        self.trial_budget.begin(now - report.step_seconds)
        self._experiments.begin(now - report.step_seconds)
        if report.steps_per_epoch and not self._loop_steps and self._settings.sources_in_batches:
            self._triggers.allow_local_sgd(report.step)
        self._loop_steps = report.steps_per_epoch
        self._fallback.observe(report)
        self._learner.loss(report)
        if not self._learner.steps.add(report, now):
            return
        predicted = self._learner.exchange(report, self._network_estimator.network)
        if report.plan != self.plan:
            return  # the next plan is on its way to all ranks
        if self._triggers.is_warm:  # before, it is the predictions that have everything to learn
            between = report.step_seconds * max(1, report.plan.local_steps)
            self.drift.observe(report.exchange_seconds(predicted), predicted, between)
        if not report.plan.is_dense:
            self._since_plan.compressed(report)
            self._learner.compression(report)
            self._learner.gain(report, self._since_plan.gain)
        self._review(now)

    def _plan_underperforms(self, *, has_more_parts: bool) -> None:
        self._triggers.request_decision("measured", self._step)

    def observe_profile(self, profile: Profile, now: float) -> None:
        """See `Controller.observe_profile`."""
        is_first = self._learner.predictor.profile is None
        self._learner.predictor.observe_profile(profile)
        self.log.profiled(profile, self._learner.predicted(profile.plan, self._network_estimator.network), now)
        if self._settings.is_profile_news(is_first=is_first):
            self._triggers.queue("profile")

    def observe_trials(self, reports: Sequence[TrialReport], now: float) -> None:
        """See `Controller.observe_trials`."""
        self._learner.trials(reports, self._network_estimator.network, self._step)
        self.trial_budget.ended(sum(report.wall_seconds for report in reports), now)
        self._triggers.queue("trials" if reports else "gain")

    # What to do -------------------------------------------------------------------------------------

    def next_action(self, now: float, steps_left_in_epoch: int) -> Action:
        """See `Controller.next_action`."""
        self._believe_network(now)
        network = self._network_estimator.network
        evaluator = self._evaluator(network or UNKNOWN_NETWORK)
        alarm = self._alarm(None if network is None else evaluator.dense)
        alarm = self._fallback.due(alarm, now, is_network_known=self._is_network_known)
        if alarm is not None:
            return self._fall_back(alarm, evaluator, network or UNKNOWN_NETWORK, now)
        if network is None or self._fallback.holds(self._step, now):
            return KeepGoing()
        trigger = self._trigger(evaluator, now)
        if trigger is None:
            return self._experiment(evaluator, network, now) or self._start(evaluator, network, now)
        evaluator = self._renew(network)
        self._experiments.acted_upon(now)
        if trigger == "gain":
            self._since_plan.gain.look()
            trials = self._trials(evaluator, now, steps_left_in_epoch)
            if trials is not None:
                return trials
            if not selection.might_improve(evaluator):
                return KeepGoing()
        is_provisional, seed = trigger == "warm-up", self._seed + self.log.next_id
        made = selection.choose(evaluator, self._since_network.excluded_plans, seed, is_provisional=is_provisional)
        return self._carry_out(trigger, made, network, now)

    def _alarm(self, dense: Prediction | None) -> guards.GuardRailViolation | None:
        """Return why to leave the plan for dense, if at all."""
        if self.plan.is_dense:
            return None
        steps = self._learner.steps.since(self.plan, self._since_network.start)
        return guards.alarm(self._fallback.num_dropped_in_a_row, self._since_plan.residual, steps, dense)

    def _fall_back(
        self, alarm: guards.GuardRailViolation, evaluator: PlanEvaluator, network: Network, now: float
    ) -> Action:
        """Switch to dense for a while, and reset all that a guard resets."""
        self._fallback.begin(alarm, self._step, now)
        self._triggers.fell_back()
        self._since_network.exclude({banned_of(self.plan)})
        return self._carry_out("guard", selection.back_to_dense(evaluator, alarm.reason), network, now)

    def _trigger(self, evaluator: PlanEvaluator, now: float) -> Trigger | None:
        """Return why to decide now, if at all.

        While the network seems to have changed and is yet to be measured, a gain that has moved waits: the present plan
        is the only one known to suffer from the change. It also waits while decisions have taken a share that shows.
        """
        heeds_gain = reads_gain(self._facts.optimizer) and not self.plan.is_dense and self.trial_budget.may_decide(now)
        return self._triggers.due(
            self._step,
            is_warmed_up=self._since_plan.num_steps >= warmup_steps(evaluator.present, self._settings.warmup_steps),
            has_network_moved=self._network_estimator.has_moved(now),
            has_gain_moved=self._is_network_known and heeds_gain and self._since_plan.gain.moved,
            has_progress_moved=self._is_network_known and self._experiments.has_news(now),
        )

    @property
    def _is_network_known(self) -> bool:
        """True if nothing says that the network has changed and is yet to be measured."""
        return self._network_estimator.suspect is None and not self.drift.is_unexplained

    def _experiment(self, evaluator: PlanEvaluator, network: Network, now: float) -> Action | None:
        """Switch to another plan for a while, to learn by the loss what its steps bring; None if none is worth it."""
        if not self.can_run_trials or self.drift.is_unexplained or not self._triggers.is_settled:
            return None
        made = self._experiments.suggest(evaluator, self._since_network.excluded_plans, self._since_plan.num_steps, now)
        return self._carry_out("experiment", made, network, now) if made else None

    def _trials(self, evaluator: PlanEvaluator, now: float, steps_left_in_epoch: int) -> RunTrials | None:
        """Return the trials to run before a gain that has moved is acted upon, and reserve their time.

        Returns:
            The trials; None if no candidate is worth one or fits the budget, or if the epoch ends too soon.
        """
        knows, budget = partial(self._learner.predictor.knows_gain, step=self._step), self.trial_budget.available(now)
        trials, seconds = candidates.trials_to_run(evaluator, knows, steps_left_in_epoch, budget) or (None, 0.0)
        if trials is not None:
            self.trial_budget.reserve(seconds)
        return trials

    def _start(self, evaluator: PlanEvaluator, network: Network, now: float) -> Action:
        """Switch to another plan than dense before the first step, if it is predicted to save much time."""
        if self._triggers.is_warm or self.trial_budget.has_begun:
            return KeepGoing()
        made = selection.start(self._renew(network), self._seed + self.log.next_id)
        return self._carry_out("warm-up", made, network, now) if made.is_change else KeepGoing()

    def _carry_out(self, trigger: Trigger, made: Choice, network: Network, now: float) -> Action:
        reason, failed = self._experiments.judged(trigger, made)
        self._since_network.exclude(failed)
        return super()._carry_out(trigger, replace(made, reason=reason), network, now)

    @property
    def _settings_now(self) -> ControllerSettings:
        return self._settings.in_loop_of(self._loop_steps) if self._loop_steps else self._settings

    # Changes of the network -------------------------------------------------------------------------

    def _believe_network(self, now: float) -> None:
        """Accept a suspected network if the last exchanges agree with it, or if they do not contradict it for long."""
        network = self._network_estimator.network
        if network is None:
            return
        contradicts, since = self._learner.speaks_for, self._since_network.start
        change = self._network_estimator.accept(now, lambda suspect: contradicts(suspect, network, self.plan, since))
        if change is not None:
            self._network_changed(change, now)

    def _network_changed(self, change: NetworkChange, now: float) -> None:
        super()._network_changed(change, now)
        network = self._network_estimator.network
        assert network is not None, "it has changed"
        self._fallback.network_changed(self._step, self._evaluator(network).dense.step_seconds)

    # Checkpoints ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """See `Controller.state_dict`."""
        return {**super().state_dict(), "warm": self._triggers.is_warm, **self._fallback.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Controller.load_state_dict`."""
        super().load_state_dict(state)
        if "warm" in state:  # else a static controller wrote it
            self._triggers.resume(is_warm=state["warm"])
            self._fallback.load_state_dict(state)
