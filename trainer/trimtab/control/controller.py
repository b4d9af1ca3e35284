"""The controller on rank 0: what it is told of training, and what it answers; and what every controller keeps.

Every change of plan is predicted before it, written down with its reason, and measured afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trimtab_api.netmon.view import NetworkView

from trimtab.control.decision_log import DecisionLog
from trimtab.control.learning import Learner
from trimtab.control.monitors.gain import GainWatch
from trimtab.control.monitors.model_drift import PredictionDrift
from trimtab.control.monitors.network import Network, NetworkChange, NetworkEstimator
from trimtab.control.monitors.recent_steps import was_applied
from trimtab.control.monitors.since_change import SinceNetworkChange, SincePlanChange
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.plan_outcome import NUM_STEPS, PlanOutcome, sends_in_more_parts
from trimtab.control.planning import FusionPlanning
from trimtab.control.reason import of_optimizer
from trimtab.control.search.selection import Choice
from trimtab.control.trial_budget import TrialBudget
from trimtab.control.types import (
    Action,
    ControllerSettings,
    KeepGoing,
    ModelFacts,
    StepReport,
    SwitchPlan,
    TrialReport,
)
from trimtab.plan.plan import Plan
from trimtab.plan.profile import Profile
from trimtab.run_files.schema import Trigger


class Controller(ABC):
    """Chooses the plan while training. Rank 0 only; ``now`` is seconds on any monotonic clock."""

    def __init__(self, settings: ControllerSettings, facts: ModelFacts, seed: int = 0) -> None:
        """Plan the first buffers, by what is known of the model alone."""
        self.drift = PredictionDrift()
        """Says when exchanges disagree with their predictions, so that the monitors should measure."""
        self.trial_budget = TrialBudget(settings.exploration_share)
        """The time that trials may take; processor time that decisions take is counted against it."""
        self.log = DecisionLog()
        self._settings, self._facts, self._seed = settings, facts, seed
        self._network_estimator = NetworkEstimator(settings.network_change)
        self._learner = Learner(facts)
        self._planning = FusionPlanning(self._learner.predictor, facts, settings.candidate_ratios)
        self.plan: Plan = self._planning.first(settings)
        """The present plan: adopt it before the first step. It is the same on every rank."""
        self._step = 0
        self._since_network = SinceNetworkChange(PlanOutcome(self._learner.steps))
        self._since_plan = self._plan_begins()

    @property
    def can_run_trials(self) -> bool:
        """True if candidates are tried where the loop allows it."""
        return False

    @property
    def offers_rounds(self) -> bool:
        """True if local steps that the job has not asked for may be chosen in loops over ``session.batches``."""
        return False

    def preload(self) -> None:
        """Import now what decisions need, where that takes a second or two."""

    # What is observed -------------------------------------------------------------------------------

    def observe_network(self, view: NetworkView, now: float) -> None:
        """Take a new revision of the network; the monitor sends it."""
        change = self._network_estimator.observe(view, now)
        if change is not None:
            self._network_changed(change, now)

    def observe_step(self, report: StepReport, now: float) -> None:
        """Take the report of a training step that has ended."""
        self._step = report.step
        self._since_plan.count_steps(was_applied(report) and report.plan == self.plan)
        self._learn(report, now)

    @abstractmethod
    def _learn(self, report: StepReport, now: float) -> None:
        """Learn from a step."""

    @abstractmethod
    def observe_profile(self, profile: Profile, now: float) -> None:
        """Take the profile of some steps. Raises `ValueError` for a profile of another model."""

    @abstractmethod
    def observe_trials(self, reports: Sequence[TrialReport], now: float) -> None:
        """Take what trials have measured, some or all of those asked for; none if they were refused."""

    # What to do -------------------------------------------------------------------------------------

    @abstractmethod
    def next_action(self, now: float, steps_left_in_epoch: int) -> Action:
        """Return what to do between two steps; asked once before the first step, and once after each of them."""

    def _review(self, now: float) -> None:
        """Write down what the last change of plan has brought, and choose once more if steps became longer."""
        if self._since_plan.num_steps <= NUM_STEPS:
            return
        measured, worse = self._since_network.outcome.review(self._step, now)
        self.log.measured(measured)
        if worse is not None:
            has_more_parts = sends_in_more_parts(worse.adopted, worse.previous)
            if has_more_parts:
                self._since_network.forbid_cuts()
            self._plan_underperforms(has_more_parts=has_more_parts)

    @abstractmethod
    def _plan_underperforms(self, *, has_more_parts: bool) -> None:
        """Choose once more: steps are longer than before the last change, which had buffers sent in more parts."""

    def _carry_out(self, trigger: Trigger, made: Choice, network: Network, now: float) -> Action:
        """Write the choice down; adopt the plan, if it is another."""
        made = replace(made, reason=of_optimizer(made.reason, self._facts.optimizer))
        inputs = made.inputs(network, self._facts.optimizer)
        decision = self.log.decide(trigger, self._step, now, inputs, made)
        self._network_estimator.decided()
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
        return PlanEvaluator(evaluate, self._planning, self._settings_now, self.plan, self._facts.optimizer)

    @property
    def _settings_now(self) -> ControllerSettings:
        """The settings, with what the script's present loop allows."""
        return self._settings

    def _renew(self, network: Network) -> PlanEvaluator:
        """Plan buffers anew, by what is known now."""
        self._planning.renew(network.latency, network.beta, may_cut=self._since_network.may_cut)
        return self._evaluator(network)

    def _network_changed(self, change: NetworkChange, now: float) -> None:
        """Reset all that a change of the network resets."""
        self._learner.network_changed(change, now)
        self.log.measured(self._since_network.outcome.close(self._step, now))
        self._since_network = SinceNetworkChange(PlanOutcome(self._learner.steps), start=now)
        self.drift.network_changed(now)

    def _plan_begins(self) -> SincePlanChange:
        return SincePlanChange(GainWatch(self._settings.gain_change, self._settings.gain_window))

    def take_warning(self) -> str | None:
        """Return a sentence for the user, once: about a plan that went wrong, and that the policy cannot leave."""
        return None

    # Checkpoints ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return everything learned and decided so far, as JSON data."""
        return {
            "plan": self.plan.to_json(),
            "log": self.log.state_dict(),
            "step": self._step,
            "predictor": self._learner.predictor.state_dict(),
            "network": self._network_estimator.state_dict(),
            "gain": self._since_plan.gain.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned; overheads, caches and the plan survive a restart, the clock does not."""
        self.plan = Plan.from_json(state["plan"])
        self.log.load_state_dict(state["log"])
        self._step = state["step"]
        self._learner.predictor.load_state_dict(state["predictor"])
        self._network_estimator.load_state_dict(state["network"])
        self._since_plan.gain.load_state_dict(state["gain"])
