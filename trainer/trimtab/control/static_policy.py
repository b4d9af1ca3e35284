"""A static policy's plan stays; its buffers and its timetable are made anew by what is profiled."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.control.choice import Choice
from trimtab.control.decision import Prediction
from trimtab.control.learning import Learner
from trimtab.control.network_watch import Network
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.types import StepReport
from trimtab.plan import Plan

#: What exchanges are counted from where the network is not measured: what they take is learned.
NOMINAL_NETWORK = Network(0, 1e-3, 125e6)

#: A plan that was planned by an earlier profile is left for one that takes less than this share of its time to target.
_WORTH_IT = 0.95


class StaticPolicy:
    """Learns what exchanges take, and says when the plan is to be planned anew."""

    def __init__(self, learner: Learner, begun_with: Plan) -> None:
        self._learner, self._begun_with = learner, begun_with
        self._planned_with = learner.predictor.profile

    def observe_step(self, report: StepReport, network: Network | None) -> None:
        """A training step has ended."""
        self._learner.exchange(report, network or NOMINAL_NETWORK)

    def plan_anew(self, renew: Callable[[], PlanEvaluator]) -> Choice | None:
        """The same plan, in the buffers and by the timetable that are planned for it now; None where they stay.

        ``renew`` has it planned by what is known. It is asked once for each profile.
        """
        if self._learner.predictor.profile is self._planned_with:
            return None
        self._planned_with = self._learner.predictor.profile
        evaluator = renew()
        found, present = evaluator.first(), evaluator.present
        is_first = present.plan.timetable is None and present.plan.fusion.cuts == self._begun_with.fusion.cuts
        if found.plan == present.plan.with_version(0) or not (is_first or _is_worth_it(found, present)):
            return None
        return Choice(evaluator.dense, present, found, "planned anew by what was profiled")


def _is_worth_it(found: Prediction, present: Prediction) -> bool:
    """Times are never measured twice alike; a change for their noise's sake would only be followed by the next."""
    return found.step_seconds * found.relative_steps < _WORTH_IT * present.step_seconds * present.relative_steps
