"""Which plan to train under on one network, as the models see it now. Pure: asking changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import log

from trimtab.control import candidates
from trimtab.control.decision import Prediction
from trimtab.control.knee import knee, log_speedup
from trimtab.control.reason import reason_to_change, reason_to_keep
from trimtab.control.solve import Space, solve
from trimtab.control.staleness import reads_gain
from trimtab.control.types import ControllerSettings, OptimizerFamily
from trimtab.plan import Plan, dense_plan

#: A change of plan must shorten the predicted time to target by this factor ...
_WORTH_A_CHANGE = log(1.05)
#: ... and by this one where it is for the sake of a gain that is measured, and so known less well: where the step
#: becomes slower, or hardly faster ...
_WORTH_IT_FOR_THE_GAIN = log(1.15)
#: ... than by this factor, less than which no measurement would tell from the noise of steps.
_HARDLY_FASTER = 0.95


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
    """The plans that no other dominates; empty where none were sought."""


class PlanEvaluator:
    """What every plan is predicted to do on one network at one step, beside dense and the plan in force."""

    def __init__(
        self,
        evaluate: Callable[[Plan], Prediction],
        settings: ControllerSettings,
        present: Plan,
        optimizer: OptimizerFamily,
    ) -> None:
        self.evaluate = evaluate
        self.dense = evaluate(dense_plan(settings.fusions[0]))
        self.present = evaluate(present)
        self._settings = settings
        self._measures_steps = reads_gain(optimizer)

    def choose(self, banned: Collection[tuple[str, float]], seed: int) -> Choice:
        """The knee of the Pareto front, or the present plan where leaving it promises too little.

        ``banned``: collectives and ratios that failed on this network. ``seed``: of the search for the front.
        """
        settings = self._settings
        space = Space(
            settings.min_ratio, settings.max_ratio, settings.collectives, settings.fusions, settings.sparsifier
        )
        found = solve(space, self.evaluate, seed)
        allowed = [
            prediction for prediction in found if (prediction.plan.collective, prediction.plan.ratio) not in banned
        ]
        best = knee(allowed, self.dense, settings.speed_weight)
        gained, faster, needed = self._promise(best)
        # A plan predicted slower than dense is left however little there is to gain.
        keep = gained < needed and (self.present.plan.is_dense or self.present.step_seconds < self.dense.step_seconds)
        chosen = self.present if keep else best
        reason = (
            reason_to_keep(self.present, best, gained, needed, faster) if keep else reason_to_change(self.present, best)
        )
        return Choice(self.dense, self.present, chosen, reason, tuple(found))

    def might_improve(self) -> bool:
        """Whether a look at the candidates alone promises half of what a change needs; else solving is idle.

        And not free: it takes as long as half a step, and the gain moves every few steps while training begins.
        """
        gained, _, needed = self._promise(knee(self._candidates(), self.dense, self._settings.speed_weight))
        return gained > needed / 2

    def worth_a_trial(self, is_known: Callable[[Plan], bool]) -> list[Prediction]:
        """Candidates that might win and whose gain is not known, shortest first."""
        return candidates.worth_a_trial(self._candidates(), self.dense, self._log_speedup, is_known)

    def _promise(self, best: Prediction) -> tuple[float, bool, float]:
        """By how much a plan is better than the present one, whether that is for its shorter step, and what it needs.

        Where steps are not known by the gain, no change is for the gain's sake.
        """
        faster = not self._measures_steps or best.step_seconds < _HARDLY_FASTER * self.present.step_seconds
        needed = _WORTH_A_CHANGE if faster else _WORTH_IT_FOR_THE_GAIN
        return self._log_speedup(best) - self._log_speedup(self.present), faster, needed

    def _candidates(self) -> list[Prediction]:
        settings, fusion = self._settings, self.present.plan.fusion
        return [
            self.evaluate(Plan(ratio, collective, settings.sparsifier, fusion))
            for ratio in settings.candidate_ratios
            for collective in settings.collectives
        ]

    def _log_speedup(self, prediction: Prediction) -> float:
        return log_speedup(prediction, self.dense, self._settings.speed_weight)
