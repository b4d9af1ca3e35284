"""Which plan to train under on one network, as the models see it now. Pure: asking changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import log, log1p

from trimtab.control.decision import Inputs, Prediction
from trimtab.control.monitors.network import Network
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.reason import reason_to_change, reason_to_keep, reason_to_start
from trimtab.control.search.knee import knee
from trimtab.control.search.pareto import front, spread
from trimtab.control.search.search import solve
from trimtab.control.search.space import Space
from trimtab.control.types import OptimizerFamily
from trimtab.plan.plan import Plan

#: A change of plan must shorten the predicted time to target by this factor ...
_WORTH_A_CHANGE = log(1.05)
#: ... and by this one where it is for the sake of a gain that is measured, and so known less well: where the step
#: becomes slower, or hardly faster ...
_WORTH_IT_FOR_THE_GAIN = log(1.15)
#: ... than by this factor, less than which no measurement would tell from the noise of steps.
_HARDLY_FASTER = 0.95
#: ... and by this one where the present plan was chosen by what was assumed, or where all of the gradient is sent and
#: summed alike under both: steps bring as much, and what the prediction is off by is in both.
_WORTH_A_CORRECTION = log(1.01)
#: What it must be to begin with another plan than dense, by what is assumed of the machine.
_WORTH_A_START = log(1.5)
#: Dense steps of the run that a change of source is to earn back in what ranks exchange for it, once: as many as the
#: law of relative steps takes a run to have.
_EARNED_BACK_STEPS = 200
#: Plans of the front that are shown of each decision.
_MOST_SHOWN = 40


#: Collective, ratio and source.
ExcludedPlans = tuple[str, float, str]


@dataclass(frozen=True)
class Choice:
    """The plan to train under, and what it was weighed against."""

    dense: Prediction
    previous: Prediction
    """The plan in force until now; ``chosen`` where it stays."""
    chosen: Prediction
    reason: str
    """One plain sentence."""
    front: tuple[Prediction, ...] = ()
    """Plans that no other dominates, spread over all of these; empty where none were sought."""

    @property
    def is_change(self) -> bool:
        """True if it is another plan, or the same in other buffers."""
        return self.chosen.plan.with_version(0) != self.previous.plan.with_version(0)

    def inputs(self, network: Network, optimizer: OptimizerFamily) -> Inputs:
        """Return what was known when the choice was made."""
        return Inputs(
            revision=network.revision,
            latency=network.latency,
            bandwidth=network.bandwidth,
            gain=self.previous.gain,
            compute_seconds=self.dense.compute_seconds,
            dense_step_seconds=self.dense.step_seconds,
            optimizer=f"{optimizer.name} ({optimizer.kind})",
        )


def banned_of(plan: Plan) -> ExcludedPlans:
    """Return what is not to be chosen again once the plan has failed, in whatever buffers."""
    return plan.collective, plan.ratio, plan.source


def back_to_dense(evaluator: PlanEvaluator, reason: str) -> Choice:
    """Return the choice of a guard: dense, for its reason."""
    dense = evaluator.dense
    return Choice(dense, evaluator.present, dense, f"back to {dense.plan.name}: {reason}")


@dataclass(frozen=True)
class Promise:
    """The advantage that a change of plan is predicted to bring."""

    gained: float
    """Logarithm of how much sooner the target is reached than under the present plan; negative: later."""
    needed: float
    """The least that it must be for a change."""
    once: float
    """The part of it that a change of source must earn back."""
    is_for_speed: bool
    """True if the change is for a step so much shorter that a measurement will tell, and not for the gain."""


def choose(
    evaluator: PlanEvaluator, excluded_plans: Collection[ExcludedPlans], seed: int, *, is_provisional: bool = False
) -> Choice:
    """Choose the knee of the Pareto front, or keep the present plan if leaving it promises too little.

    Args:
        evaluator: Predicts plans on the present network.
        excluded_plans: Collectives, ratios and sources that failed on this network.
        seed: Of the search.
        is_provisional: Whether the present plan, if not dense, was chosen by what was assumed, and is left easily.
    """
    settings, dense, present = evaluator.settings, evaluator.dense, evaluator.present
    found = solve(Space.of(settings), evaluator.predict, seed) + evaluator.of_all_values()
    allowed = [each for each in found if banned_of(each.plan) not in excluded_plans]
    best, undominated = _worth_its_rounds(allowed, evaluator), front(allowed)
    if best is not dense and not any(each is best for each in undominated):
        undominated.append(best)  # dominated by a plan that is doubted more, or of longer rounds
    shown = tuple(spread(undominated, _MOST_SHOWN, always=best))
    promise = promise_of(best, evaluator)
    if is_provisional and not present.plan.is_dense:
        promise = replace(promise, needed=_WORTH_A_CORRECTION + promise.once)
    # A plan predicted slower than dense is left however little there is to gain.
    if promise.gained < promise.needed and (present.plan.is_dense or present.step_seconds < dense.step_seconds):
        reason = reason_to_keep(present, best, promise.gained, promise.needed, promise.is_for_speed)
        return Choice(dense, present, present, reason, shown)
    return Choice(dense, present, best, reason_to_change(present, best), shown)


def _worth_its_rounds(predictions: Sequence[Prediction], evaluator: PlanEvaluator) -> Prediction:
    """Return the knee of plans without local steps; or of longer rounds, if each promises 5% more than shorter ones.

    Ranks part for as long as a round lasts, and what that costs training is not known to a few hundredths.
    """
    dense, weight = evaluator.dense, evaluator.settings.speed_weight
    best = knee([each for each in predictions if not each.plan.local_steps], dense, weight)
    for num_local in sorted({each.plan.local_steps for each in predictions} - {0}):
        longer = knee([each for each in predictions if each.plan.local_steps == num_local], dense, weight)
        if evaluator.log_speedup(longer) > evaluator.log_speedup(best) + _WORTH_A_CHANGE:
            best = longer
    return best


def promise_of(best: Prediction, evaluator: PlanEvaluator) -> Promise:
    """Return by how much a plan is better than the present one, and by how much it must be.

    If the gain tells nothing of the steps that the job needs, no change is for its sake. A change of source must earn
    back besides what ranks exchange for it.
    """
    present = evaluator.present
    send_all = all(each.plan.is_dense and not each.plan.local_steps for each in (present, best))
    sum_alike = send_all and present.plan.collective == best.plan.collective
    is_faster = best.step_seconds < _HARDLY_FASTER * present.step_seconds
    is_for_speed = send_all or is_faster or not evaluator.reads_gain
    run_seconds = _EARNED_BACK_STEPS * present.convergence_slowdown * present.step_seconds
    once = log1p(evaluator.source_change_seconds(present.plan, best.plan) / run_seconds)
    worth = _WORTH_A_CORRECTION if sum_alike else _WORTH_A_CHANGE if is_for_speed else _WORTH_IT_FOR_THE_GAIN
    return Promise(
        gained=evaluator.log_speedup(best) - evaluator.log_speedup(present),
        needed=worth + once,
        once=once,
        is_for_speed=is_for_speed,
    )


def start(evaluator: PlanEvaluator, seed: int) -> Choice:
    """Choose the plan to begin with, by what is assumed of the machine: dense, unless another promises to save much."""
    found = choose(evaluator, (), seed)
    if evaluator.log_speedup(found.chosen) < _WORTH_A_START:
        return replace(found, chosen=found.previous)
    return replace(found, reason=reason_to_start(found.dense, found.chosen))


def might_improve(evaluator: PlanEvaluator) -> bool:
    """Return whether a look at the candidates alone promises half of what a change needs; else solving is idle.

    Solving is not free: it takes as long as half a step, and the gain moves every few steps while training begins.
    """
    acknowledged = [*evaluator.candidates(), *evaluator.kinds()]
    promise = promise_of(knee(acknowledged, evaluator.dense, evaluator.settings.speed_weight), evaluator)
    return promise.gained > promise.needed / 2
