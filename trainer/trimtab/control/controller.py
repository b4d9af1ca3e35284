"""The loop on rank 0: observe, and say what to do next.

    network views ──▶ NetworkWatch ─┐                                    ┌──▶ KeepGoing
    step reports ───▶ GainWatch ────┼──▶ trials? ──▶ solve ──▶ knee ─────┼──▶ RunTrials
                  └─▶ Predictor ────┘      guards ───────────────────────┴──▶ Adopt

Every change of plan follows a change of network or of gain, the warm-up's end, or a guard; is predicted to reach the
target sooner than the plan it leaves; and is measured afterwards.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from math import isfinite
from statistics import median
from typing import Any

from trimtab.control import candidates, guards, warmup
from trimtab.control.aftermath import NUM_STEPS, Aftermath, RecentSteps, Timed
from trimtab.control.decision import Decision, Inputs, Point
from trimtab.control.doubt import Doubt
from trimtab.control.knee import depth, knee
from trimtab.control.predict import Predictor
from trimtab.control.reason import reason_to_change, reason_to_keep, reason_to_start
from trimtab.control.solve import Space, preload, solve
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

#: A change of plan must shorten the predicted time to target by this much (as a logarithm) ...
_WORTH_A_CHANGE = 0.05
#: ... and by this much where it slows the step down for the sake of the gain, which is known less well.
_WORTH_A_SLOWER_STEP = 0.15
#: Steps after which the choice for a new network is looked at again, in the light of what they took.
_SETTLED_STEPS = 8
#: Steps of dense after a guard, doubled each time.
_HOLD_STEPS = 10
#: A monitor may notice a change this late: steps before it are not to be learned from.
_NOTICED_LATE_SECONDS = 5.0


#: Stands in a record where no view ever came.
_UNKNOWN_NETWORK = Network(0, 1e-6, 1e12)


class Controller:
    """Chooses the plan while training. Rank 0 only; ``now`` is seconds on any monotonic clock."""

    def __init__(self, settings: ControllerSettings, facts: ModelFacts, seed: int = 0) -> None:
        self._settings = settings
        self._facts = facts
        self._seed = seed
        self._adaptive = settings.policy == "adaptive" and facts.num_ranks > 1
        self._dense = dense_plan(settings.fusions[0])
        #: The present plan: adopt it before the first step.
        self.plan: Plan = settings.static_plan or self._dense
        self._space = Space(
            settings.min_ratio, settings.max_ratio, settings.collectives, settings.fusions, settings.sparsifier
        )
        self._predictor = Predictor(facts)
        self._network_watch = NetworkWatch(settings.network_change)
        self._gain_watch = GainWatch(settings.gain_change, settings.gain_window)
        self._log: list[dict[str, Any]] = []
        self._next_decision_id = 1
        self._next_version = 1
        self._step = 0
        self._started: float | None = None
        self._explored_until: float | None = None
        self._exploration_seconds = 0.0
        self._decided_network: Network | None = None
        self._network_since = float("-inf")
        self._warm = False
        self._trigger: str | None = None
        self._steps = RecentSteps()
        self._aftermath = Aftermath(self._steps)
        self._reported_plan: Plan | None = None
        self._residual_norms: deque[float] = deque(maxlen=guards.RESIDUAL_WINDOW)
        self._steps_under_plan = 0
        self._second_look: tuple[str, int] | None = None  # what for, and at which step
        self._dropped_in_a_row = 0
        self._hold_until_step = 0
        self._held_for_speed = False
        self._num_guards = 0
        self._banned: set[tuple[str, float]] = set()
        self._doubt = Doubt()

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
        if self._started is None:
            self._started = self._explored_until = now - report.step_seconds
        self._step = report.step
        self._dropped_in_a_row = 0 if report.finite else self._dropped_in_a_row + 1
        is_first = report.plan != self._reported_plan
        self._reported_plan = report.plan
        if not report.finite or not isfinite(report.gain):
            return
        if report.plan == self.plan:
            self._steps_under_plan += 1
        if is_first:
            return  # it carries the change of plan itself
        network = self._network_watch.network
        expected = (
            self._predictor.sync_seconds(report.plan, network.latency, network.beta)
            if network is not None
            else report.collective_seconds
        )
        self._steps.add(Timed(report, now, expected))
        if network is not None:
            self._predictor.observe_step(report, network.latency, network.beta)
        if report.plan != self.plan:
            return  # the next plan is on its way to all ranks
        self._doubt.observe(report.collective_seconds, expected, report.step_seconds)
        if not report.plan.is_dense:
            self._learn_selection(report)
        if self._steps_under_plan > NUM_STEPS:
            self._measure_decision(now)

    def observe_trials(self, reports: Sequence[TrialReport], now: float) -> None:
        """The trials asked for have run (some or all) and everything is restored; empty when they were refused."""
        network = self._network_watch.network
        for report in reports:
            self._exploration_seconds += report.wall_seconds
            if network is not None:
                self._predictor.observe_step(report, network.latency, network.beta)
            self._predictor.compress_times.observe(report.plan, report.compress_seconds, self._step)
            self._predictor.observe_trial_gain(report.plan, report.gain, self._step)
        self._explored_until = now
        self._trigger = "trials" if reports else "gain"

    def asks_to_measure(self, now: float) -> bool:
        """Whether the exchange's time no longer fits the network view: the monitor should measure now.

        A yes is said once; the next waits the longer, the more often nothing came of it.
        """
        return self._doubt.asks(now)

    def measurement_refused(self, now: float) -> None:
        """The monitors could not measure when `asks_to_measure` said so: their budget was spent, or they had just."""
        self._doubt.refused(now)

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
        if network is None or self._step < self._hold_until_step:
            return KeepGoing()
        start = self._start(network, now) if self._started is None else None
        if start is not None:
            return start
        trigger = self._why_decide(network)
        if trigger is None:
            return KeepGoing()
        if trigger == "gain":
            self._gain_watch.look()
            trials = self._trials(network, now, steps_left_in_epoch)
            if trials is not None:
                return trials
            if not self._might_improve(network):
                return KeepGoing()
        return self._decide(trigger, network, now)

    def drain_log(self) -> list[dict[str, Any]]:
        """The lines of ``decisions.jsonl`` since the last call, in order."""
        lines, self._log = self._log, []
        return lines

    # Why to decide ----------------------------------------------------------------------------------

    def _why_decide(self, network: Network) -> str | None:
        if not self._warm:
            return self._after_warmup(network)
        if self._trigger is not None:
            trigger, self._trigger = self._trigger, None
            return trigger
        if self._decided_network is None or self._network_watch.has_left(self._decided_network):
            self._second_look = ("network", self._step + _SETTLED_STEPS)
            return "network"
        if self._second_look is not None and self._step >= self._second_look[1]:
            trigger, self._second_look = self._second_look[0], None
            return trigger
        if not self.plan.is_dense and self._gain_watch.moved:
            return "gain"
        return None

    def _start(self, network: Network, now: float) -> Action | None:
        """Before the first step: warm up at the largest ratio where dense steps would take too long."""
        evaluate = self._evaluator(network)
        dense = evaluate(self._dense)
        chosen = warmup.instead_of_dense(evaluate, dense, self._settings, self.plan.fusion)
        if chosen is None:
            return None
        return self._record("warm-up", network, now, [], dense, dense, chosen, reason_to_start(dense, chosen))

    def _after_warmup(self, network: Network) -> str | None:
        """The trigger of the first real decision, once the warm-up is over."""
        present = self._predictor.point(self.plan, network.latency, network.beta, self._step)
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
        recent = [timed.report.collective_seconds for timed in list(self._steps)[-2:] if timed.report.plan == self.plan]
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
        self._doubt.settle(now)
        self._banned.clear()
        if self._held_for_speed:
            self._hold_until_step = 0

    # Deciding ---------------------------------------------------------------------------------------

    def _decide(self, trigger: str, network: Network, now: float) -> Action:
        weight = self._settings.speed_weight
        evaluate = self._evaluator(network)
        dense, present = evaluate(self._dense), evaluate(self.plan)
        found = solve(self._space, evaluate, self._seed + self._next_decision_id)
        allowed = [point for point in found if (point.plan.collective, point.plan.ratio) not in self._banned]
        best = knee(allowed, dense, weight)
        deeper = depth(best, dense, weight) - depth(present, dense, weight)
        needed = _WORTH_A_CHANGE if best.step_seconds < present.step_seconds else _WORTH_A_SLOWER_STEP
        # A plan predicted slower than dense is left however little there is to gain.
        keep = deeper < needed and (present.plan.is_dense or present.step_seconds < dense.step_seconds)
        chosen = present if keep else best
        reason = reason_to_keep(present, best, deeper, needed) if keep else reason_to_change(present, best)
        return self._record(trigger, network, now, found, dense, present, chosen, reason)

    def _might_improve(self, network: Network) -> bool:
        """Whether a look at the candidates alone promises half of what a change needs; else solving is idle."""
        evaluate, weight = self._evaluator(network), self._settings.speed_weight
        dense, present = evaluate(self._dense), evaluate(self.plan)
        best = knee(self._candidate_points(network), dense, weight)
        return depth(best, dense, weight) - depth(present, dense, weight) > _WORTH_A_CHANGE / 2

    def _candidate_points(self, network: Network) -> list[Point]:
        evaluate = self._evaluator(network)
        return [
            evaluate(Plan(ratio, collective, self._settings.sparsifier, self.plan.fusion))
            for ratio in self._settings.candidate_ratios
            for collective in self._settings.collectives
        ]

    def _fall_back(self, reason: str, network: Network | None, now: float) -> Action:
        """To dense, for a while."""
        self._num_guards += 1
        self._hold_until_step = self._step + _HOLD_STEPS * 2 ** (self._num_guards - 1)
        self._banned.add((self.plan.collective, self.plan.ratio))
        self._trigger = "guard"
        self._second_look = None
        network = network or _UNKNOWN_NETWORK
        evaluate = self._evaluator(network)
        dense, present = evaluate(self._dense), evaluate(self.plan)
        return self._record("guard", network, now, [], dense, present, dense, f"back to dense: {reason}")

    def _record(
        self,
        trigger: str,
        network: Network,
        now: float,
        found: Sequence[Point],
        dense: Point,
        left: Point,
        chosen: Point,
        reason: str,
    ) -> Action:
        changed = chosen.plan.with_version(0) != left.plan.with_version(0)
        adopted = chosen.plan.with_version(self._next_version) if changed else left.plan
        decision = Decision(
            id=self._next_decision_id,
            step=self._step,
            time=now,
            trigger=trigger,
            inputs=Inputs(
                revision=network.revision,
                latency=network.latency,
                bandwidth=network.bandwidth,
                gain=left.gain,
                compute_seconds=self._predictor.compute_seconds,
                dense_step_seconds=dense.step_seconds,
            ),
            left=left.plan,
            adopted=adopted,
            predicted_left_seconds=left.step_seconds,
            predicted_seconds=chosen.step_seconds,
            pareto=tuple(found),
            reason=reason,
        )
        self._next_decision_id += 1
        self._decided_network = network
        self._log.append(decision.to_json())
        if not changed:
            return KeepGoing()
        self._measure_decision(now)
        self._aftermath.begin(decision, lambda plan: self._predictor.sync_seconds(plan, network.latency, network.beta))
        self._next_version += 1
        self._adopt(adopted)
        return Adopt(adopted, decision)

    def _adopt(self, plan: Plan) -> None:
        self.plan = plan
        self._steps_under_plan = 0
        self._residual_norms.clear()
        self._doubt.forget()
        self._gain_watch.restart()

    def _guard(self, network: Network | None) -> str | None:
        """Why to go back to dense now, if at all."""
        if self.plan.is_dense:
            return None
        self._held_for_speed = False
        reason = guards.non_finite(self._dropped_in_a_row) or guards.growing_residual(list(self._residual_norms))
        if reason is None and network is not None:
            on_this_network = [
                timed.report.step_seconds
                for timed in self._steps
                if timed.report.plan == self.plan and timed.end - timed.report.step_seconds > self._network_since
            ]
            reason = guards.slower_than_dense(on_this_network, self._evaluator(network)(self._dense))
            self._held_for_speed = reason is not None
        return reason

    def _evaluator(self, network: Network) -> Any:
        return lambda plan: self._predictor.point(plan, network.latency, network.beta, self._step)

    # Learning ---------------------------------------------------------------------------------------

    def _learn_selection(self, report: StepReport) -> None:
        """Selection time and gain of the present plan; the gain only once the residual has begun to settle."""
        self._residual_norms.append(report.residual_norm)
        self._gain_watch.observe(report.gain)
        recent = [under.compress_seconds for under in self._steps.under(report.plan)]
        self._predictor.compress_times.observe(report.plan, median(recent[-15:]), report.step)
        if self._gain_watch.settled is not None:
            self._predictor.observe_gain(report.plan, self._gain_watch.settled, report.step)

    def _trials(self, network: Network, now: float, steps_left_in_epoch: int) -> RunTrials | None:
        iterations = min(self._settings.trial_iterations, steps_left_in_epoch)
        if iterations < candidates.FEWEST_ITERATIONS or self._started is None or self._explored_until is None:
            return None
        share = self._settings.exploration_share
        budget = min(
            share * (now - self._explored_until),
            share * (now - self._started) - self._exploration_seconds,
        )
        evaluate = self._evaluator(network)
        dense = evaluate(self._dense)
        worth = candidates.worth_a_trial(
            self._candidate_points(network),
            dense,
            lambda point: depth(point, dense, self._settings.speed_weight),
            lambda plan: self._predictor.knows_gain(plan, self._step),
        )
        chosen = candidates.within_budget(worth, iterations, budget)
        if not chosen:
            return None
        return RunTrials(
            plans=tuple(point.plan for point in chosen),
            iterations=iterations,
            reason=f"the gain has moved by more than {self._settings.gain_change:.0%}",
        )

    # Measuring decisions ----------------------------------------------------------------------------

    def _measure_decision(self, now: float) -> None:
        """Write down how the last change turned out, if there was one and enough steps have passed to say so."""
        measured = self._aftermath.close(self._step, now)
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
            "num_guards": self._num_guards,
            "hold_until_step": self._hold_until_step,
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
        self._num_guards = state["num_guards"]
        self._hold_until_step = state["hold_until_step"]
