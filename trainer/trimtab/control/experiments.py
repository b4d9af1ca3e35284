"""Training for a while under another plan, to learn by the loss what its steps bring: when, under which, how long.

Where the law of relative steps charges a plan too much, it is never chosen, and nothing would show that the law is
wrong; where it charges too little, nothing that is charged less is there to compare with. So where the law may still be
off by so much that another plan would be far better, training goes on under that plan for a while. Its steps count like
all others: an experiment costs what they bring less, of a small share of the time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import expm1, inf, log

from trimtab.control.cost_model.convergence_learning import varies_with
from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.decision import Prediction
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.reason import of_progress
from trimtab.control.search.selection import Choice, ExcludedPlans, banned_of
from trimtab.plan.plan import Plan
from trimtab.run_files.schema import Trigger

#: The law may still be off by this many standard deviations of what is believed.
_DEVIATIONS = 1.2
#: An experiment is worth it for a plan that would then reach the target sooner than the present one by this factor.
_WORTH_IT = log(1.5)
#: Steps under a plan before there is anything to compare with, and between two looks for what is worth it.
_FEWEST_BEFORE, _LOOK_EVERY = 20, 8
#: Seconds between two looks at least: each weighs some hundred plans beside training, which takes tens of milliseconds.
_LOOK_EVERY_SECONDS = 3.0
#: Fewest and most steps of an experiment: fewer tell nothing, and further ones cost more than they tell.
_FEWEST_STEPS, _MOST_STEPS = 8, 64
#: Fewest rounds of local steps of an experiment, which ends with the first round that ends after its time.
_FEWEST_ROUNDS = 2
#: Experiments may waste this share of the time since training began, to which this many steps are added in advance:
#: twice as many for an experiment of local steps, which lasts two rounds at least.
_SHARE, _ADVANCE_STEPS, _ADVANCE_STEPS_OF_ROUNDS = 0.02, 80, 160
#: What an experiment is believed to waste at least, as a share of its time: where the law is off, nothing is certain.
_LEAST_WASTED = 0.1


class Exploration:
    """Keeps what experiments waste under a share of the time, and says when the next one is due and when it is over."""

    def __init__(self, predictor: Predictor) -> None:
        """Start without experiments; the ``predictor`` learns from the loss."""
        self._predictor = predictor
        self._began: float | None = None
        self._spent = 0.0
        """Seconds that experiments have wasted, as far as was believed."""
        self._wasted = 1.0
        """The share of the time of the present experiment that is believed to be wasted."""
        self._once = 0.0
        """Seconds that going there and back take, where the source of what is exchanged changes."""
        self._under_way: tuple[float, float] | None = None
        """Times at which the present experiment began, and at which it ends."""
        self._look_at, self._look_from = _FEWEST_BEFORE, -inf
        """The step under the present plan, and the time, before which nothing is looked for."""
        self._left: Plan | None = None
        """The plan that the present experiment took the place of."""

    def begin(self, now: float) -> None:
        """Take the time at which training begins. Further calls change nothing."""
        self._began = now if self._began is None else self._began

    def has_news(self, now: float) -> bool:
        """Return whether the choice is open again: an experiment has run its time, or the loss has shown a change."""
        is_over = self._under_way is not None and now >= self._under_way[1]
        return is_over or self._predictor.progress.has_moved

    def acted_upon(self, now: float) -> None:
        """Take the choice as opened again: end an experiment under way, and compare the loss from here on."""
        self._predictor.progress.look()
        if self._under_way is not None:
            self._spent += self._wasted * (now - self._under_way[0]) + self._once
            self._under_way = None
        self._look_at = _FEWEST_BEFORE

    def judged(self, trigger: Trigger, made: Choice) -> tuple[str, set[ExcludedPlans]]:
        """Return the reason of a choice, and what is not to be chosen again because its steps bring too little.

        Args:
            trigger: Why the choice was made.
            made: The choice.

        Returns:
            The reason; and the plan that was left, if its steps bring too little: the present one, or the one that an
            experiment took the place of.
        """
        if trigger == "experiment":
            return made.reason, set()
        left, self._left = self._left or made.previous.plan, None
        correction = self._predictor.progress.correction(left)
        is_left = trigger == "progress" and banned_of(made.chosen.plan) != banned_of(left)
        if not is_left or not correction.is_disappointing:
            return made.reason, set()
        return of_progress(made.reason, left, correction), {banned_of(left)}

    def suggest(
        self, evaluator: PlanEvaluator, excluded_plans: Collection[ExcludedPlans], num_steps: int, now: float
    ) -> Choice | None:
        """Choose a plan to train under for a while instead of the present one, if that is due, affordable and worth it.

        Args:
            evaluator: Predicts plans on the present network.
            excluded_plans: What is not to be chosen.
            num_steps: Steps that were trained under the present plan.
            now: Seconds.

        Returns:
            The choice; None if there is nothing to try now.
        """
        if self._under_way is not None or self._began is None or num_steps < self._look_at or now < self._look_from:
            return None
        if not self._predictor.progress.is_learning:
            return None
        self._look_at, self._look_from = num_steps + _LOOK_EVERY, now + _LOOK_EVERY_SECONDS
        elapsed, excluded = now - self._began, {*excluded_plans, banned_of(evaluator.present.plan)}
        affordable = [
            each
            for each in evaluator.kinds()
            if _fewest_steps(each) * each.step_seconds * _wasted(evaluator, each) + _once(evaluator, each)
            <= self._budget(evaluator, each, elapsed)
            and banned_of(each.plan) not in excluded
        ]
        if not affordable:
            return None
        promises = [self._promise(evaluator, each) for each in affordable]
        gained, chosen = max(zip(promises, affordable, strict=True), key=lambda promise: promise[0])
        if gained < _WORTH_IT:
            return None
        self._left = evaluator.present.plan
        self._wasted, self._once = _wasted(evaluator, chosen), _once(evaluator, chosen)
        seconds = min(
            (self._budget(evaluator, chosen, elapsed) - self._once) / self._wasted, _MOST_STEPS * chosen.step_seconds
        )
        self._under_way = (now, now + seconds)
        reason = (
            f"for a while, to learn what its steps bring: with as much as the law may be off, {chosen.plan.name} would "
            f"be at the target {expm1(gained):.0%} sooner than {evaluator.present.plan.name}"
        )
        return Choice(evaluator.dense, evaluator.present, chosen, reason)

    def _budget(self, evaluator: PlanEvaluator, chosen: Prediction, elapsed: float) -> float:
        """Return the seconds that an experiment under a plan may waste, so long after training began."""
        advance = _ADVANCE_STEPS_OF_ROUNDS if chosen.plan.local_steps else _ADVANCE_STEPS
        return _SHARE * (elapsed + advance * evaluator.present.step_seconds) - self._spent

    def _promise(self, evaluator: PlanEvaluator, other: Prediction) -> float:
        """Return by how much (log) sooner than the present plan another may reach the target, if the law is off."""

        def log_speedup(each: Prediction, deviations: float) -> float:
            return evaluator.log_speedup(
                replace(each, convergence_slowdown=self._predictor.slowdown_at(each, deviations))
            )

        present, off = evaluator.present, _DEVIATIONS
        # What is unknown of both is off for both; of two that have nothing in common one is off, and the other is not.
        is_common = varies_with(present.plan, other.plan)
        supposed = ((-off, -off), (off, off)) if is_common else ((-off, 0.0), (0.0, off))
        return max(log_speedup(other, of_it) - log_speedup(present, of_present) for of_it, of_present in supposed)


def _fewest_steps(chosen: Prediction) -> int:
    return max(_FEWEST_STEPS, _FEWEST_ROUNDS * chosen.plan.local_steps)


def _once(evaluator: PlanEvaluator, chosen: Prediction) -> float:
    """Return the seconds that ranks exchange for a change of source, there and back."""
    present = evaluator.present.plan
    there, back = ((present, chosen.plan), (chosen.plan, present))
    return evaluator.source_change_seconds(*there) + evaluator.source_change_seconds(*back)


def _wasted(evaluator: PlanEvaluator, chosen: Prediction) -> float:
    """Return the share of an experiment's time that the present plan would have saved, as far as is believed."""
    later = evaluator.log_speedup(evaluator.present) - evaluator.log_speedup(chosen)
    return max(_LEAST_WASTED, -expm1(-max(0.0, later)))
