"""Predictions of a plan on a network: its selection, exchange, gain and step time."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import lru_cache
from math import sqrt
from typing import Any

from trimtab_api import catalogue
from trimtab_api.catalogue.costs import Cost

from trimtab.control.cost_model import step_time as overlap
from trimtab.control.cost_model.clipped_mean import clipped_mean
from trimtab.control.cost_model.compression_time import CompressTimes
from trimtab.control.cost_model.convergence import convergence_slowdown, doubt
from trimtab.control.cost_model.convergence_learning import Progress
from trimtab.control.cost_model.interpolation import Curve
from trimtab.control.cost_model.overheads import Overheads
from trimtab.control.cost_model.straggler_wait import Waits
from trimtab.control.decision import Prediction
from trimtab.control.types import ModelFacts, StepReport, TrialReport
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import Profile
from trimtab.plan.timeline import BufferTimes, Readiness, Timeline, assumed_compute_seconds, latent, simulate

#: Steps after which a measured gain no longer speaks for the present stage of training.
_GAIN_MAX_AGE_STEPS = 2000
_COMPRESS_MAX_AGE_STEPS = 100_000
#: Plans whose closed-form costs are kept, and fusion plans whose buffers are.
_MOST_KNOWN_COSTS, _MOST_KNOWN_FUSIONS = 20_000, 500
#: Steps over which computation is averaged.
_COMPUTE_WINDOW = 25


class Predictor:
    """Puts together what is known: closed forms, overheads, selection times, gains, computation."""

    def __init__(self, facts: ModelFacts, compute_seconds: float | None = None) -> None:
        """Assume ``compute_seconds`` a step until steps are measured; None: a guess from the model's size."""
        self._facts = facts
        self._assumed_compute = compute_seconds or assumed_compute_seconds(facts.num_elements)
        self.overheads = Overheads()
        # Odds, gain / (1 - gain): they go in proportion to the ratio, where the gain itself saturates.
        self._gain_odds = Curve(_prior_odds, _GAIN_MAX_AGE_STEPS)
        pass_seconds = facts.num_elements * facts.select_seconds_per_element

        def passes_of(plan: Plan) -> float:
            return _passes(plan.collective, plan.ratio, plan.sparsifier, plan.wire, facts.num_ranks)

        self.compress_times = CompressTimes(Curve(lambda plan: pass_seconds * passes_of(plan), _COMPRESS_MAX_AGE_STEPS))
        self._compute: deque[tuple[float, int]] = deque(maxlen=_COMPUTE_WINDOW)
        """Computation of the last steps [s], and the number of local steps of each."""
        self._mean_compute: float | None = None
        """Mean computation [s] without what ranks wait; None: to be computed when the next plan is weighed."""
        self._waits = Waits()
        self._readiness = Readiness.by_size(facts.tensor_sizes)
        self.progress = Progress()
        """The corrections that the job's own loss shows of the steps that plans need."""
        self.profile: Profile | None = None
        """The last one; None until steps are profiled."""
        self._known_buffers: dict[FusionPlan, tuple[list[float], list[float], list[int]]] = {}
        self._known_costs: dict[tuple[str, float, FusionPlan, str], tuple[list[Cost], Cost]] = {}

    @property
    def compute_seconds(self) -> float:
        """Mean computation of a step after which ranks exchange, what a script does between steps included.

        It is that of the rank which is slowest in that step, as it was in the last ones; or what was assumed.
        """
        return self._computing(0)

    def cost(self, plan: Plan) -> Cost:
        """Return the closed-form cost of a whole step's exchanges."""
        return self._costs(plan)[1]

    def shares_interface(self, plan: Plan) -> bool:
        """Return whether a plan's exchanges cross one interface side by side, and so slow each other down."""
        return plan.num_links > len(self._facts.link_slowness)

    def observe_step(self, report: StepReport | TrialReport, alpha: float, beta: float) -> None:
        """Learn the times of a step (or of a trial's median step) on a network."""
        local_steps = max(1, report.plan.local_steps)
        self._compute.append((report.compute_seconds, local_steps))
        self._mean_compute = None
        if isinstance(report, StepReport):
            self._waits.observe(local_steps, report.arrival_seconds)
        if self.shares_interface(report.plan):
            return
        seconds = report.collective_seconds
        if isinstance(report, StepReport) and report.hidden_seconds > 0:
            predicted = self.sync_seconds(report.plan, alpha, beta)
            seconds = report.exchange_seconds(predicted)
            if seconds == predicted:
                return  # it may have taken that long, which is no evidence that it has
        self.overheads.observe(report.plan.collective, self.cost(report.plan), alpha, beta, seconds)

    def observe_loss(self, plan: Plan, loss: float) -> None:
        """Learn what a step under a plan brings, from the loss at its beginning."""
        self.progress.observe(plan, loss, self.predicted_slowdown(plan, self.gain(plan)))

    def observe_profile(self, profile: Profile) -> None:
        """Learn when gradients are complete, and what updates that come late do to the loss.

        Raises:
            ValueError: The profile is of another model, or backward takes no time in it.
        """
        sizes, seconds = self._facts.tensor_sizes, profile.tensor_backward_seconds
        if len(seconds) != len(sizes) or sum(seconds) <= 0:
            raise ValueError(
                f"tensor_backward_seconds: {len(seconds)} that sum to {sum(seconds):g}, for a model of {len(sizes)} "
                "tensors; give the seconds of every tensor in the flat gradient, in backward order"
            )
        if profile.delay_harmed_at is None and self.profile is not None:  # it is said once
            profile = replace(profile, delay_harmed_at=self.profile.delay_harmed_at)
        self.profile = profile
        self._readiness = Readiness.measured(profile, sizes)
        self._known_buffers.clear()

    def forget_steps(self, plan: Plan, alpha: float, beta: float, count: int) -> None:
        """Unlearn the exchange times of the last steps: the network had changed already."""
        self.overheads.forget(plan.collective, self.cost(plan), alpha, beta, count)

    def observe_gain(self, plan: Plan, gain: float, step: int) -> None:
        """Learn the (average) gain under a plan."""
        self._gain_odds.observe(plan, _odds(gain), step)

    def observe_trial_gain(self, plan: Plan, gain: float, step: int) -> None:
        """Learn a gain that had no time to settle: it counts for half, and for nothing where a settled one is known."""
        if not self.knows_gain(plan, step):
            self._gain_odds.observe(plan, sqrt(_odds(gain) * self._gain_odds(plan)), step)

    def knows_gain(self, plan: Plan, step: int) -> bool:
        """Return whether the gain under this plan was measured of late."""
        return self._gain_odds.knows(plan, step)

    def gain(self, plan: Plan) -> float:
        """Predict the gain; 1 for dense."""
        if plan.is_dense:
            return 1.0
        odds = self._gain_odds(plan)
        return odds / (1 + odds)

    def sync_seconds(self, plan: Plan, alpha: float, beta: float) -> float:
        """Predict the exchange of a whole step [s], hidden behind backward or not."""
        return self.overheads.seconds(plan.collective, self.cost(plan), alpha, beta)

    def buffer_seconds(self, plan: Plan, num_elements: int, alpha: float, beta: float) -> float:
        """Predict what a buffer of so many elements adds to the plan's exchange [s]."""
        cost = plan.buffer_cost(num_elements, self._facts.num_ranks, self._facts.ranks_on_each)
        return self.overheads.buffer_seconds(plan.collective, cost, self.cost(plan), alpha, beta)

    def slowdown_at(self, prediction: Prediction, deviations: float) -> float:
        """Return a plan's convergence slowdown, at least 1, if the law were off by so many deviations.

        Args:
            prediction: The plan and its gain.
            deviations: Standard deviations of what the loss has shown, from its mean; negative: fewer steps.
        """
        correction = self.progress.correction(prediction.plan)
        lawful = self.predicted_slowdown(prediction.plan, prediction.gain)
        supposed: float = lawful * correction.believed * correction.deviation**deviations
        return max(1.0, supposed)

    def predict(self, plan: Plan, alpha: float, beta: float) -> Prediction:
        """Predict everything that the choice weighs, for one plan, at ``alpha`` s a message and ``beta`` s a byte."""
        compute = self._computing(plan.local_steps)
        buffers = self._times(plan, alpha, beta)
        exchanges = overlap.exchanges_a_step(len(buffers.ready), plan.schedule, plan.timetable, plan.local_steps)
        compress = exchanges * sum(buffers.compress)
        seconds = overlap.step_seconds(compute, buffers, plan.schedule, plan.timetable, plan.local_steps)
        gain = self.gain(plan)
        return Prediction(
            plan=plan,
            compress_seconds=compress,
            sync_seconds=max(0.0, seconds - compute - compress),
            gain=gain,
            convergence_slowdown=max(1.0, self.predicted_slowdown(plan, gain) * self.progress.correction(plan).applied),
            step_seconds=seconds,
            doubt=doubt(plan, self._facts),
        )

    def timeline(self, plan: Plan, alpha: float, beta: float) -> Timeline:
        """Simulate the predicted step, moment by moment, once what the schedule delays has settled.

        It is computing alone if the plan's steps exchange nothing.
        """
        cycle = overlap.cycle_of(plan.schedule, len(plan.fusion.cuts), plan.timetable)
        iterations = [() if plan.local_steps else transfers for transfers, count in cycle for _ in range(count)]
        computing = self._computing(plan.local_steps)
        settled = simulate(computing, self._times(plan, alpha, beta), 2 * iterations)
        return settled.of_iteration(len(iterations))

    def state_dict(self) -> dict[str, Any]:
        """Return everything learned, as JSON data."""
        return {
            "overheads": self.overheads.state_dict(),
            "gain_odds": self._gain_odds.state_dict(),
            "compress_times": self.compress_times.state_dict(),
            "compute": [list(each) for each in self._compute],
            "waits": self._waits.state_dict(),
            "progress": self.progress.state_dict(),
            "profile": None if self.profile is None else self.profile.to_json(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.overheads.load_state_dict(state["overheads"])
        self._gain_odds.load_state_dict(state["gain_odds"])
        self.compress_times.load_state_dict(state["compress_times"])
        if "waits" in state:  # an earlier version kept no number of local steps, and is some steps from knowing again
            self._compute = deque(map(tuple, state["compute"]), maxlen=_COMPUTE_WINDOW)
            self._waits.load_state_dict(state["waits"])
        self._mean_compute = None
        if "progress" in state:  # of a checkpoint that an earlier version wrote, nothing is known of it
            self.progress.load_state_dict(state["progress"])
        if state["profile"] is not None:
            self.observe_profile(Profile.from_json(state["profile"]))

    def _computing(self, local_steps: int) -> float:
        """Return the mean computation of a step [s], by how many local steps lie between exchanges; 0: none."""
        waits = self._waits
        if self._mean_compute is None:
            alone = [max(0.0, seconds - waits.seconds(each)) for seconds, each in self._compute]
            self._mean_compute = clipped_mean(alone) if alone else self._assumed_compute
        return self._mean_compute + waits.seconds(max(1, local_steps))

    def predicted_slowdown(self, plan: Plan, gain: float) -> float:
        """Return a plan's convergence slowdown by the law alone, without what the loss has shown."""
        tolerates_staleness = self.profile is None or self.profile.tolerates_staleness(
            is_sgd=self._facts.optimizer.kind == "sgd"
        )
        return convergence_slowdown(plan, gain, self._facts, tolerates_staleness=tolerates_staleness)

    def _costs(self, plan: Plan) -> tuple[list[Cost], Cost]:
        """Return the cost of each buffer, and their sum; kept, as each decision predicts the same few hundred plans."""
        key = (plan.collective, plan.ratio, plan.fusion, plan.wire)
        if key not in self._known_costs:
            if len(self._known_costs) >= _MOST_KNOWN_COSTS:
                self._known_costs.clear()  # fusion plans that were planned anew leave theirs behind
            costs = plan.buffer_costs(self._facts.num_elements, self._facts.num_ranks, self._facts.ranks_on_each)
            self._known_costs[key] = costs, sum(costs, Cost(0, 0))
        return self._known_costs[key]

    def _times(self, plan: Plan, alpha: float, beta: float) -> BufferTimes:
        """Predict when each of a plan's buffers is ready and needed, and how long its compression and sending take."""
        compute, (costs, cost) = self._computing(plan.local_steps), self._costs(plan)
        sync = self.overheads.seconds(plan.collective, cost, alpha, beta)
        compress = self.compress_times.of_buffer(plan, self._facts.num_elements)
        ready, needed, sizes = self._buffers(plan.fusion)
        own = [self.overheads.buffer_seconds(plan.collective, each, cost, alpha, beta) for each in costs]
        own_sum, whole = sum(own) or 1.0, cost.seconds(alpha, beta) or 1.0
        startup = None
        if self.shares_interface(plan):
            startup = [latent(sync * each.messages * alpha / whole) for each in costs]
        return BufferTimes(
            [compute * share for share in ready],
            [compress(size) for size in sizes],
            [sync * seconds / own_sum for seconds in own],
            [compute * share for share in needed],
            compute * self._readiness.backward_begin,
            self._facts.link_slowness,
            startup,
        )

    def _buffers(self, fusion: FusionPlan) -> tuple[list[float], list[float], list[int]]:
        """Return, of each buffer, the shares of computation after which it is complete and needed, and its elements."""
        if fusion not in self._known_buffers:
            if len(self._known_buffers) >= _MOST_KNOWN_FUSIONS:
                self._known_buffers.clear()
            buffers = fusion.buffers(self._facts.num_elements)
            self._known_buffers[fusion] = (
                [self._readiness.of_buffer(buffer.stop) for buffer in buffers],
                [self._readiness.needed(buffer.stop) for buffer in buffers],
                [len(buffer) for buffer in buffers],
            )
        return self._known_buffers[fusion]


@lru_cache(maxsize=20_000)
def _passes(collective: str, ratio: float, sparsifier: str, wire: str, num_ranks: int) -> float:
    """Return what compressing costs, in passes over the gradient.

    If the ranks of a host sum first, each makes one pass to add its residual, and compresses its part of the sum.
    """
    row, per_host = catalogue.collectives[collective], catalogue.per_host(collective)
    senders = max(1, num_ranks // per_host)
    rounding: float = catalogue.wires[wire].passes * row.arriving(ratio, senders)
    passes = row.passes(ratio, senders, catalogue.sparsifiers[sparsifier].passes) + rounding
    return passes if per_host == 1 or row.is_dense else 1 + passes / per_host


def _prior_odds(plan: Plan) -> float:
    """Return the odds of the gain before any is measured."""
    selected = 1.0 if plan.row.has_builtin_sparsifier else catalogue.sparsifiers[plan.sparsifier].gain_odds
    return selected * plan.ratio / plan.row.prior_half_gain_ratio


def _odds(gain: float) -> float:
    gain = min(0.9999, max(1e-4, gain))
    return gain / (1 - gain)
