"""The loop on rank 0: observe, and say what to do next.

    network views ──▶ NetworkWatch ─┐                                    ┌──▶ KeepGoing
    step reports ───▶ GainWatch ────┼──▶ trials? ──▶ solve ──▶ knee ─────┼──▶ RunTrials
                  └─▶ Predictor ────┘      guards ───────────────────────┴──▶ Adopt

Every change of plan follows a change of network or of gain, the warm-up's end, a guard, or a change that turned out
slower than what it left; is predicted to reach the target sooner than the plan it leaves; and is measured afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from statistics import median
from typing import Any

from trimtab.control import candidates, warmup
from trimtab.control.choice import Choice, PlanEvaluator
from trimtab.control.decision import Decision, Inputs, Measured, Prediction
from trimtab.control.fallback import Fallback
from trimtab.control.plan_outcome import NUM_STEPS, PlanOutcome, RecentSteps, Timed
from trimtab.control.predict import Predictor
from trimtab.control.prediction_drift import PredictionDrift
from trimtab.control.reason import of_optimizer, reason_to_start
from trimtab.control.solve import preload
from trimtab.control.staleness import reads_gain
from trimtab.control.trial_budget import TrialBudget
from trimtab.control.triggers import GainWatch, Network, NetworkWatch, speaks_for
from trimtab.control.types import (
    Action,
    Adopt,
    ControllerSettings,
    KeepGoing,
    ModelFacts,
    NetworkView,
    RunTrials,
    StepReport,
    TrialReport,
)
from trimtab.plan import Plan, dense_plan

#: Steps after which the choice for a new network is looked at again, in the light of what they took.
_SETTLED_STEPS = 8
#: A monitor may notice a change this late: steps before it are not to be learned from.
_NOTICED_LATE_SECONDS = 5.0
#: Steps after it that are not, either: queues drain, and connections find their pace.
_TRANSIENT_STEPS = 3


#: Stands in a record where no view ever came.
_UNKNOWN_NETWORK = Network(0, 1e-6, 1e12)


class Controller:
    """Chooses the plan while training. Rank 0 only; ``now`` is seconds on any monotonic clock."""

    def __init__(self, settings: ControllerSettings, facts: ModelFacts, seed: int = 0) -> None:
        self._settings = settings
        self._facts = facts
        self._seed = seed
        self._adaptive = settings.policy == "adaptive" and facts.num_ranks > 1
        #: The present plan: adopt it before the first step.
        self.plan: Plan = settings.static_plan or dense_plan(settings.fusions[0])
        self._predictor = Predictor(facts)
        self._network_watch = NetworkWatch(settings.network_change)
        self._gain_watch = GainWatch(settings.gain_change, settings.gain_window)
        self._log: list[dict[str, Any]] = []
        self._next_decision_id = 1
        self._next_version = 1
        self._step = 0
        self._trial_budget = TrialBudget(settings.exploration_share)
        self._network_since = float("-inf")
        self._transient_steps = 0
        self._warm = False
        self._trigger: str | None = None
        self._steps = RecentSteps()
        self._outcome = PlanOutcome(self._steps)
        self._reported_plan: Plan | None = None
        self._steps_under_plan = 0
        self._second_look: tuple[str, int] | None = None  # what for, and at which step
        self._fallback = Fallback()
        self._drift = PredictionDrift()

    # What is observed -------------------------------------------------------------------------------

    def observe_network(self, view: NetworkView, now: float) -> None:
        """A new revision of the network, whenever the monitor sends one."""
        confirmed_at, before = self._network_watch.confirmed_at, self._network_watch.network
        if before is None and self._adaptive:
            preload()
        if self._network_watch.observe(view, now):
            self._network_changed(before, confirmed_at, now)

    def observe_step(self, report: StepReport, now: float) -> None:
        """A training step has ended."""
        if not self._adaptive:
            return
        self._trial_budget.begin(now - report.step_seconds)
        self._step = report.step
        self._fallback.observe(report)
        is_first = report.plan != self._reported_plan
        self._reported_plan = report.plan
        if not report.finite or (report.gain is not None and not isfinite(report.gain)):
            return
        if report.plan == self.plan:
            self._steps_under_plan += 1
        if is_first:
            return  # it carries the change of plan itself
        if self._transient_steps > 0:
            self._transient_steps -= 1
            return
        network = self._network_watch.network
        expected = (
            self._predictor.sync_seconds(report.plan, network.latency, network.beta)
            if network is not None
            else report.collective_seconds
        )
        self._steps.add(Timed(report, now))
        if network is not None:
            self._predictor.observe_step(report, network.latency, network.beta)
        if report.plan != self.plan:
            return  # the next plan is on its way to all ranks
        if self._warm:  # before, it is the predictions that have everything to learn
            self._drift.observe(report.collective_seconds, expected, report.step_seconds)
        if not report.plan.is_dense:
            self._learn_selection(report)
        if self._steps_under_plan > NUM_STEPS:
            measured, underperforms = self._outcome.underperforms(self._step, now)
            self._write_down(measured)
            if underperforms:
                self._second_look = ("measured", self._step)

    def observe_trials(self, reports: Sequence[TrialReport], now: float) -> None:
        """The trials asked for have run (some or all) and everything is restored; empty when they were refused."""
        network = self._network_watch.network
        for report in reports:
            if network is not None:
                self._predictor.observe_step(report, network.latency, network.beta)
            self._predictor.compress_times.observe(report.plan, report.compress_seconds, self._step)
            self._predictor.observe_trial_gain(report.plan, report.gain, self._step)
        self._trial_budget.ended(sum(report.wall_seconds for report in reports), now)
        self._trigger = "trials" if reports else "gain"

    def asks_to_measure(self, now: float) -> bool:
        """Whether the exchange's time no longer fits the network view: the monitor should measure now.

        A yes is said once, and `measurement_taken` or `measurement_refused` is to follow; the next waits the longer,
        the more often nothing came of it.
        """
        return self._drift.asks(now)

    def measurement_taken(self) -> None:
        """The monitors have measured as `asks_to_measure` asked them to, and what they found has been told."""
        self._drift.answered()

    def measurement_refused(self, now: float) -> None:
        """The monitors could not measure when `asks_to_measure` said so: their budget was spent, or they had just."""
        self._drift.refused(now)

    # What to do -------------------------------------------------------------------------------------

    def next_action(self, now: float, steps_left_in_epoch: int) -> Action:
        """What to do between two steps: ask once before the first step, and once after each `observe_step`."""
        if not self._adaptive:
            return KeepGoing()
        self._believe_network(now)
        network = self._network_watch.network
        guard = self._guard(network)
        if guard is not None:
            return self._fall_back(guard, network, now)
        if network is None or self._step < self._fallback.hold_until_step:
            return KeepGoing()
        start = None if self._trial_budget.has_begun else self._start(network, now)
        if start is not None:
            return start
        trigger = self._why_decide(network, now)
        if trigger is None:
            return KeepGoing()
        if trigger == "gain":
            self._gain_watch.look()
            trials = self._trials(network, now, steps_left_in_epoch)
            if trials is not None:
                return trials
            if not self._evaluator(network).might_improve():
                return KeepGoing()
        choice = self._evaluator(network).choose(self._fallback.banned, self._seed + self._next_decision_id)
        return self._record(trigger, network, now, choice)

    def solved(self, seconds: float) -> None:
        """What `next_action` took, where it decided anything [seconds of a processor]: trials have the less."""
        self._trial_budget.solved(seconds)

    def drain_log(self) -> list[dict[str, Any]]:
        """The lines of ``decisions.jsonl`` since the last call, in order."""
        lines, self._log = self._log, []
        return lines

    # Why to decide ----------------------------------------------------------------------------------

    def _why_decide(self, network: Network, now: float) -> str | None:
        if not self._warm:
            return self._after_warmup(network)
        if self._trigger is not None:
            trigger, self._trigger = self._trigger, None
            return trigger
        if self._network_watch.has_left(now):
            self._second_look = ("network", self._step + _SETTLED_STEPS)
            return "network"
        if self._second_look is not None and self._step >= self._second_look[1]:
            trigger, self._second_look = self._second_look[0], None
            return trigger
        # A second look is near, and until then steps on a network that has just changed say little. Where the network
        # seems to have changed and is yet to be measured, the present plan is the only one known to suffer from it.
        is_known = self._second_look is None and self._network_watch.suspect is None and not self._drift.is_open
        if is_known and not self.plan.is_dense and self._gain_watch.moved and reads_gain(self._facts.optimizer):
            return "gain"
        return None

    def _start(self, network: Network, now: float) -> Action | None:
        """Before the first step: choose by what is assumed of the machine where dense steps would take too long."""
        evaluator = self._evaluator(network)
        if not warmup.takes_too_long(evaluator.dense, self._settings.warmup_steps):
            return None
        choice = evaluator.choose(self._fallback.banned, self._seed + self._next_decision_id)
        if choice.chosen.plan.is_dense:
            return None
        reason = reason_to_start(choice.dense, choice.chosen)
        return self._record("warm-up", network, now, replace(choice, reason=reason))

    def _after_warmup(self, network: Network) -> str | None:
        """The trigger of the first real decision, once the warm-up is over."""
        present = self._predictor.predict(self.plan, network.latency, network.beta, self._step)
        if self._steps_under_plan < warmup.num_steps(present, self._settings.warmup_steps):
            return None
        self._warm = True
        self._second_look = ("warm-up", self._step + _SETTLED_STEPS)
        return "warm-up"

    def _believe_network(self, now: float) -> None:
        confirmed_at, before = self._network_watch.confirmed_at, self._network_watch.network
        if self._network_watch.believe(now, self._exchanges_agree):
            self._network_changed(before, confirmed_at, now)

    def _exchanges_agree(self, suspect: Network) -> bool | None:
        """Whether the last exchange times speak for a suspected network, against it (False), or not at all (None)."""
        network = self._network_watch.network
        recent = [
            timed.report.collective_seconds
            for timed in list(self._steps)[-2:]
            if timed.report.plan == self.plan and timed.end > self._network_since
        ]
        if network is None or len(recent) < 2 or min(recent) <= 0:
            return None
        expected, suspected = (
            self._predictor.sync_seconds(self.plan, each.latency, each.beta) for each in (network, suspect)
        )
        return speaks_for(median(recent), expected, suspected)

    def _network_changed(self, before: Network | None, confirmed_at: float, now: float) -> None:
        """What was learned since the network was last seen as it had been may have been learned on the new one."""
        if before is None:
            return
        since = max(confirmed_at, now - _NOTICED_LATE_SECONDS)
        doubtful = Counter(timed.report.plan for timed in self._steps if timed.end > since)
        for plan, count in doubtful.items():
            self._predictor.forget_steps(plan, before.latency, before.beta, count)
        self._network_since = now
        self._transient_steps = _TRANSIENT_STEPS
        self._write_down(self._outcome.close(self._step, now))
        self._outcome.begin_anew()
        self._drift.settle(now)
        self._fallback.reset(self._step)

    # Deciding ---------------------------------------------------------------------------------------

    def _fall_back(self, reason: str, network: Network | None, now: float) -> Action:
        """To dense, for a while."""
        self._fallback.begin(self.plan, self._step)
        self._trigger = "guard"
        self._second_look = None
        network = network or _UNKNOWN_NETWORK
        evaluator = self._evaluator(network)
        choice = Choice(
            evaluator.dense, evaluator.present, evaluator.dense, f"back to {evaluator.dense.plan.name}: {reason}"
        )
        return self._record("guard", network, now, choice)

    def _record(self, trigger: str, network: Network, now: float, choice: Choice) -> Action:
        """Write the choice down, and carry it out."""
        previous, chosen = choice.previous, choice.chosen
        changed = chosen.plan.with_version(0) != previous.plan.with_version(0)
        adopted = chosen.plan.with_version(self._next_version) if changed else previous.plan
        decision = Decision(
            id=self._next_decision_id,
            step=self._step,
            time=now,
            trigger=trigger,
            inputs=Inputs(
                revision=network.revision,
                latency=network.latency,
                bandwidth=network.bandwidth,
                gain=previous.gain,
                compute_seconds=self._predictor.compute_seconds,
                dense_step_seconds=choice.dense.step_seconds,
            ),
            previous=previous.plan,
            adopted=adopted,
            predicted_previous_seconds=previous.step_seconds,
            predicted_seconds=chosen.step_seconds,
            pareto=choice.front,
            reason=of_optimizer(choice.reason, self._facts.optimizer),
        )
        self._next_decision_id += 1
        self._network_watch.decided()
        self._log.append(decision.to_json())
        if not changed:
            return KeepGoing()
        self._write_down(self._outcome.close(self._step, now))
        self._outcome.begin(decision, lambda plan: self._predictor.sync_seconds(plan, network.latency, network.beta))
        self._next_version += 1
        self._adopt(adopted)
        return Adopt(adopted, decision)

    def _adopt(self, plan: Plan) -> None:
        self.plan = plan
        self._steps_under_plan = 0
        self._fallback.restart()
        self._drift.forget()
        self._gain_watch.restart()

    def _guard(self, network: Network | None) -> str | None:
        """Why to go back to dense now, if at all."""
        if self.plan.is_dense:
            return None
        on_this_network = [
            timed.report.step_seconds
            for timed in self._steps
            if timed.report.plan == self.plan and timed.end - timed.report.step_seconds > self._network_since
        ]
        return self._fallback.why(on_this_network, None if network is None else self._evaluator(network).dense)

    def _evaluator(self, network: Network) -> PlanEvaluator:
        def evaluate(plan: Plan) -> Prediction:
            return self._predictor.predict(plan, network.latency, network.beta, self._step)

        return PlanEvaluator(evaluate, self._settings, self.plan, self._facts.optimizer)

    # Learning ---------------------------------------------------------------------------------------

    def _learn_selection(self, report: StepReport) -> None:
        """Selection time and gain of the present plan; the gain only once the residual has begun to settle."""
        if report.gain is not None:
            self._fallback.observe_residual(report.residual_norm, report.gain)
            self._gain_watch.observe(report.gain)
        recent = [under.compress_seconds for under in self._steps.under(report.plan)]
        self._predictor.compress_times.observe(report.plan, median(recent[-15:]), report.step)
        if self._gain_watch.settled is not None:
            self._predictor.observe_gain(report.plan, self._gain_watch.settled, report.step)

    def _trials(self, network: Network, now: float, steps_left_in_epoch: int) -> RunTrials | None:
        iterations = min(self._settings.trial_iterations, steps_left_in_epoch)
        if iterations < candidates.FEWEST_ITERATIONS:
            return None
        worth = self._evaluator(network).worth_a_trial(lambda plan: self._predictor.knows_gain(plan, self._step))
        chosen, predicted = candidates.within_budget(worth, iterations, self._trial_budget.budget(now))
        if not chosen:
            return None
        self._trial_budget.ask(predicted)
        return RunTrials(
            plans=tuple(prediction.plan for prediction in chosen),
            iterations=iterations,
            reason=f"the gain has moved by more than {self._settings.gain_change:.0%}",
        )

    # Measuring decisions ----------------------------------------------------------------------------

    def _write_down(self, measured: Measured | None) -> None:
        """How the last change turned out, if there was one and enough steps have passed to say so."""
        if measured is not None:
            self._log.append(measured.to_json())

    # Checkpoints ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything learned and decided so far, as JSON data."""
        return {
            "plan": self.plan.to_json(),
            "next_version": self._next_version,
            "next_decision_id": self._next_decision_id,
            "step": self._step,
            "warm": self._warm,
            "predictor": self._predictor.state_dict(),
            "network": self._network_watch.state_dict(),
            "gain": self._gain_watch.state_dict(),
            "num_guards": self._fallback.num_guards,
            "hold_until_step": self._fallback.hold_until_step,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`; overheads, caches and the plan survive a restart, the clock does not."""
        self.plan = Plan.from_json(state["plan"])
        self._next_version = state["next_version"]
        self._next_decision_id = state["next_decision_id"]
        self._step = state["step"]
        self._warm = state["warm"]
        self._predictor.load_state_dict(state["predictor"])
        self._network_watch.load_state_dict(state["network"])
        self._gain_watch.load_state_dict(state["gain"])
        self._fallback.num_guards = state["num_guards"]
        self._fallback.hold_until_step = state["hold_until_step"]
