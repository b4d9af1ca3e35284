"""The loop on rank 0: observe, and say what to do next.

    network views ──▶ NetworkWatch ─┐                                              ┌──▶ KeepGoing
    step reports ───▶ Learner ──────┼──▶ guard? ──▶ trigger? ──▶ trials? ──▶ choose ──┼──▶ RunTrials
    profiles ───────▶ Predictor ────┘                                              └──▶ Adopt

Every change of plan follows a change of network, of gain or of what steps are seen to bring, the warm-up's end, a
guard, or a change that turned out slower than the plan before; is predicted to reach the target sooner than the plan
before; and is measured afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trimtab.control import warmup
from trimtab.control.cost_model.convergence import reads_gain
from trimtab.control.decision import Prediction
from trimtab.control.decision_log import DecisionLog
from trimtab.control.experiments import Exploration
from trimtab.control.fallback import DenseFallback
from trimtab.control.learning import Learner
from trimtab.control.monitors import guards
from trimtab.control.monitors.gain import GainWatch
from trimtab.control.monitors.model_drift import PredictionDrift
from trimtab.control.monitors.network import UNKNOWN_NETWORK, Network, NetworkChange, NetworkWatch
from trimtab.control.monitors.recent_steps import was_applied
from trimtab.control.monitors.since_change import SinceNetworkChange, SincePlanChange
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.plan_outcome import NUM_STEPS, PlanOutcome, sends_in_more_parts
from trimtab.control.planning import FusionPlanning
from trimtab.control.reason import of_optimizer
from trimtab.control.search import candidates
from trimtab.control.search import selection as choice
from trimtab.control.search.search import preload
from trimtab.control.search.selection import Choice, banned_of
from trimtab.control.static_policy import NOMINAL_NETWORK, StaticPolicy
from trimtab.control.trial_budget import TrialBudget
from trimtab.control.triggers import Triggers
from trimtab.control.types import (
    Action,
    ControllerSettings,
    KeepGoing,
    ModelFacts,
    NetworkView,
    RunTrials,
    StepReport,
    SwitchPlan,
    TrialReport,
)
from trimtab.plan.plan import Plan
from trimtab.plan.profile import Profile
from trimtab.run_files.schema import Trigger


class Controller:
    """Chooses the plan while training. Rank 0 only; ``now`` is seconds on any monotonic clock."""

    def __init__(self, settings: ControllerSettings, facts: ModelFacts, seed: int = 0) -> None:
        self.drift = PredictionDrift()
        """Says when exchanges disagree with their predictions, so that the monitors should measure."""
        self.trial_budget = TrialBudget(settings.exploration_share)
        """What trials may take; processor time that decisions take is counted against it."""
        self.log = DecisionLog()
        self._settings, self._facts, self._seed = settings, facts, seed
        self._is_adaptive = settings.policy == "adaptive" and facts.num_ranks > 1
        self.can_run_trials = self._is_adaptive and settings.exploration_share > 0
        """Whether candidates are tried where the loop allows it."""
        self.offers_rounds = self._is_adaptive and bool(settings.sources_in_batches)
        """Whether local steps, which the job has not asked for, may be chosen in loops over ``session.batches``."""
        self._network_watch = NetworkWatch(settings.network_change)
        self._learner = Learner(facts)
        self._planning = FusionPlanning(self._learner.predictor, facts, settings.candidate_ratios)
        self.plan: Plan = self._planning.first(settings)
        """The present plan: adopt it before the first step. It is the same on every rank."""
        self._static = StaticPolicy(self._learner, self.plan)
        self._step = 0
        self._loop_steps = 0.0  # of the script's loop over ``session.batches``; 0 where it is over something else
        self._triggers = Triggers()
        self._fallback = DenseFallback()
        self._experiments = Exploration(self._learner.predictor)
        self._since_network = SinceNetworkChange(PlanOutcome(self._learner.steps))
        self._since_plan = self._plan_begins()

    def preload(self) -> None:
        """Import now what decisions need, a second or two, where any will be made."""
        if self._is_adaptive:
            preload()

    # What is observed -------------------------------------------------------------------------------

    def observe_network(self, view: NetworkView, now: float) -> None:
        """A new revision of the network, whenever the monitor sends one."""
        change = self._network_watch.observe(view, now)
        if change is not None:
            self._network_changed(change, now)

    def observe_step(self, report: StepReport, now: float) -> None:
        """A training step has ended."""
        self._step = report.step
        self._since_plan.num_steps += was_applied(report) and report.plan == self.plan
        if not self._is_adaptive:
            if self._learner.steps.add(report, now):
                self._static.observe_step(report, self._network_watch.network)
                self._review(now)
            return
        self.trial_budget.begin(now - report.step_seconds)
        self._experiments.begin(now - report.step_seconds)
        if report.steps_per_epoch and not self._loop_steps and self._settings.sources_in_batches:
            self._triggers.allow_local_sgd(report.step)
        self._loop_steps = report.steps_per_epoch
        self._fallback.observe(report)
        self._learner.loss(report)
        if not self._learner.steps.add(report, now):
            return
        predicted = self._learner.exchange(report, self._network_watch.network)
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

    def _review(self, now: float) -> None:
        """Write down what the last change of plan has brought, and choose once more where that is longer steps."""
        if self._since_plan.num_steps <= NUM_STEPS:
            return
        measured, worse = self._since_network.outcome.review(self._step, now)
        self.log.measured(measured)
        if worse is not None:
            if sends_in_more_parts(worse.adopted, worse.previous):
                self._since_network.may_cut = False
                self._static.parts_underperform()
            self._triggers.request_decision("measured", self._step)

    def observe_profile(self, profile: Profile, now: float) -> None:
        """Some steps were profiled. Raises `ValueError` for a profile of another model."""
        is_first = self._learner.predictor.profile is None
        self._learner.predictor.observe_profile(profile)
        if self._is_adaptive:
            self.log.profiled(profile, self._learner.predicted(profile.plan, self._network_watch.network), now)
            if self._settings.is_profile_news(is_first=is_first):
                self._triggers.queue("profile")

    def observe_trials(self, reports: Sequence[TrialReport], now: float) -> None:
        """The trials asked for have run (some or all) and everything is restored; empty when they were refused."""
        self._learner.trials(reports, self._network_watch.network, self._step)
        self.trial_budget.ended(sum(report.wall_seconds for report in reports), now)
        self._triggers.queue("trials" if reports else "gain")

    # What to do -------------------------------------------------------------------------------------

    def next_action(self, now: float, steps_left_in_epoch: int) -> Action:
        """What to do between two steps: ask once before the first step, and once after each `observe_step`."""
        if not self._is_adaptive:
            network = self._network_watch.network
            due = self._static.look(self._renew, network, has_network_moved=self._network_watch.has_moved(now))
            return self._carry_out(*due, network or NOMINAL_NETWORK, now) if due else KeepGoing()
        self._believe_network(now)
        network = self._network_watch.network
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
            if not choice.might_improve(evaluator):
                return KeepGoing()
        is_provisional, seed = trigger == "warm-up", self._seed + self.log.next_id
        made = choice.choose(evaluator, self._since_network.excluded_plans, seed, is_provisional=is_provisional)
        return self._carry_out(trigger, made, network, now)

    def _alarm(self, dense: Prediction | None) -> guards.GuardRailViolation | None:
        """Why to leave the plan for dense, if at all."""
        if self.plan.is_dense:
            return None
        steps = self._learner.steps.since(self.plan, self._since_network.start)
        return guards.alarm(self._fallback.num_dropped_in_a_row, self._since_plan.residual, steps, dense)

    def _fall_back(
        self, alarm: guards.GuardRailViolation, evaluator: PlanEvaluator, network: Network, now: float
    ) -> Action:
        """To dense, for a while: all that a guard resets is reset here."""
        self._fallback.begin(alarm, self._step, now)
        self._triggers.fell_back()
        self._since_network.excluded_plans.add(banned_of(self.plan))
        return self._carry_out("guard", choice.back_to_dense(evaluator, alarm.reason), network, now)

    def _trigger(self, evaluator: PlanEvaluator, now: float) -> Trigger | None:
        """Why to decide now, if at all.

        Where the network seems to have changed and is yet to be measured, a gain that has moved waits: the present plan
        is the only one known to suffer from the change. It also waits while decisions have taken a share that shows.
        """
        heeds_gain = reads_gain(self._facts.optimizer) and not self.plan.is_dense and self.trial_budget.may_decide(now)
        return self._triggers.due(
            self._step,
            is_warmed_up=self._since_plan.num_steps >= warmup.num_steps(evaluator.present, self._settings.warmup_steps),
            has_network_moved=self._network_watch.has_moved(now),
            has_gain_moved=self._is_network_known and heeds_gain and self._since_plan.gain.moved,
            has_progress_moved=self._is_network_known and self._experiments.has_news(now),
        )

    @property
    def _is_network_known(self) -> bool:
        """Whether nothing says that it has changed and is yet to be measured."""
        return self._network_watch.suspect is None and not self.drift.is_unexplained

    def _experiment(self, evaluator: PlanEvaluator, network: Network, now: float) -> Action | None:
        """Another plan for a while, to learn by the loss what its steps bring; None where nothing is worth it."""
        if not self.can_run_trials or self.drift.is_unexplained or not self._triggers.is_settled:
            return None
        made = self._experiments.suggest(evaluator, self._since_network.excluded_plans, self._since_plan.num_steps, now)
        return self._carry_out("experiment", made, network, now) if made else None

    def _trials(self, evaluator: PlanEvaluator, now: float, steps_left_in_epoch: int) -> RunTrials | None:
        """The candidates to try before a gain that has moved is acted upon, if any is worth it and fits the budget."""
        knows, budget = partial(self._learner.predictor.knows_gain, step=self._step), self.trial_budget.available(now)
        trials, seconds = candidates.trials_to_run(evaluator, knows, steps_left_in_epoch, budget) or (None, 0.0)
        if trials is not None:
            self.trial_budget.reserve(seconds)
        return trials

    def _start(self, evaluator: PlanEvaluator, network: Network, now: float) -> Action:
        """Before the first step: another plan than dense, where much time is predicted to be saved."""
        if self._triggers.is_warm or self.trial_budget.has_begun:
            return KeepGoing()
        made = choice.start(self._renew(network), self._seed + self.log.next_id)
        return self._carry_out("warm-up", made, network, now) if made.is_change else KeepGoing()

    def _carry_out(self, trigger: Trigger, made: Choice, network: Network, now: float) -> Action:
        """Write the choice down; adopt the plan, if it is another."""
        reason, failed = self._experiments.judged(trigger, made)
        self._since_network.excluded_plans |= failed
        made = replace(made, reason=of_optimizer(reason, self._facts.optimizer))
        inputs = made.inputs(network, self._facts.optimizer)
        decision = self.log.decide(trigger, self._step, now, inputs, made)
        self._network_watch.decided()
        if not decision.changed:
            return KeepGoing()
        outcome = self._since_network.outcome
        self.log.measured(outcome.close(self._step, now))
        outcome.begin(decision, lambda plan: self._learner.predictor.sync_seconds(plan, network.latency, network.beta))
        self.plan = decision.adopted
        self._since_plan = self._plan_begins()
        self.drift.plan_changed()
        return SwitchPlan(self.plan, decision)

    def _evaluator(self, network: Network) -> PlanEvaluator:
        evaluate = partial(self._learner.predictor.predict, alpha=network.latency, beta=network.beta)
        settings = self._settings.in_loop_of(self._loop_steps) if self._loop_steps else self._settings
        return PlanEvaluator(evaluate, self._planning, settings, self.plan, self._facts.optimizer)

    def _renew(self, network: Network) -> PlanEvaluator:
        """Plan buffers anew, by what is known now."""
        self._planning.renew(network.latency, network.beta, may_cut=self._since_network.may_cut)
        return self._evaluator(network)

    # Changes of the network -------------------------------------------------------------------------

    def _believe_network(self, now: float) -> None:
        """A view that differs may be believed by what the last exchanges took."""
        network = self._network_watch.network
        if network is None:
            return
        contradicts, since = self._learner.speaks_for, self._since_network.start
        change = self._network_watch.accept(now, lambda suspect: contradicts(suspect, network, self.plan, since))
        if change is not None:
            self._network_changed(change, now)

    def _network_changed(self, change: NetworkChange, now: float) -> None:
        """All that a change of the network resets is reset here."""
        self._learner.network_changed(change, now)
        self.log.measured(self._since_network.outcome.close(self._step, now))
        self._since_network = SinceNetworkChange(PlanOutcome(self._learner.steps), start=now)
        self.drift.network_changed(now)
        network = self._network_watch.network
        assert network is not None, "it has changed"
        self._fallback.network_changed(self._step, self._evaluator(network).dense.step_seconds)

    def _plan_begins(self) -> SincePlanChange:
        return SincePlanChange(GainWatch(self._settings.gain_change, self._settings.gain_window))

    # Checkpoints ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything learned and decided so far, as JSON data."""
        return {
            "plan": self.plan.to_json(),
            "log": self.log.state_dict(),
            "step": self._step,
            "warm": self._triggers.is_warm,
            "predictor": self._learner.predictor.state_dict(),
            "network": self._network_watch.state_dict(),
            "gain": self._since_plan.gain.state_dict(),
            **self._fallback.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`; overheads, caches and the plan survive a restart, the clock does not."""
        self.plan = Plan.from_json(state["plan"])
        self.log.load_state_dict(state["log"])
        self._step = state["step"]
        self._triggers.is_warm = state["warm"]
        self._learner.predictor.load_state_dict(state["predictor"])
        self._network_watch.load_state_dict(state["network"])
        self._since_plan.gain.load_state_dict(state["gain"])
        self._fallback.load_state_dict(state)
