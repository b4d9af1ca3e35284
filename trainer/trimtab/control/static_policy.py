"""A static policy's plan stays; its buffers and its timetable are made anew by what is profiled.

What its steps and dense's should take is said once, so that who watches the job can tell whether the plan pays.
"""

from __future__ import annotations

from collections.abc import Callable

from trimtab.control.choice import Choice
from trimtab.control.decision import Prediction
from trimtab.control.learning import Learner
from trimtab.control.network_watch import Network
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.plan_outcome import sends_in_more_parts
from trimtab.control.types import StepReport
from trimtab.plan import Plan
from trimtab.records.lines import Trigger

#: What exchanges are counted from where the network is not measured: what they take is learned.
NOMINAL_NETWORK = Network(0, 1e-3, 125e6)

#: A plan that was planned by an earlier profile is left for one that takes less than this share of its time to target.
_WORTH_IT = 0.95


class StaticPolicy:
    """Learns what exchanges take, and says when the plan is to be planned anew."""

    def __init__(self, learner: Learner, begun_with: Plan) -> None:
        self._learner, self._begun_with = learner, begun_with
        self._planned_with = learner.predictor.profile
        self._has_said = begun_with.is_dense
        """What steps should take on the job's network; of dense there is nothing to say."""
        self._is_cut_too_fine = False

    def observe_step(self, report: StepReport, network: Network | None) -> None:
        """A training step that tells what its plan takes has ended."""
        self._learner.exchange(report, network or NOMINAL_NETWORK)
        if not report.plan.is_dense:
            self._learner.compression(report)

    def parts_underperform(self) -> None:
        """Steps have turned out longer in the plan's parts than before: plan it without them."""
        self._is_cut_too_fine = True

    def look(self, renew: Callable[[Network], PlanEvaluator], network: Network | None) -> tuple[Trigger, Choice] | None:
        """What is to be written down, if anything: the same plan in other buffers, or that it stays as it is.

        The latter once, when steps were profiled and the ``network`` is known. ``renew`` has the plan planned by what
        is known; it is asked once for each profile, and once more where the network was not known then or where the
        plan's parts underperform.
        """
        profile = self._learner.predictor.profile
        is_new, says = profile is not self._planned_with, not self._has_said and network is not None
        is_cut_too_fine, self._is_cut_too_fine = self._is_cut_too_fine, False
        if profile is None or not (is_new or says or is_cut_too_fine):
            return None
        self._planned_with, self._has_said = profile, self._has_said or says
        evaluator = renew(network or NOMINAL_NETWORK)
        found, present = evaluator.first(), evaluator.present
        if is_cut_too_fine and sends_in_more_parts(present.plan, found.plan):
            num_parts = len(present.plan.fusion.cuts)
            reason = (
                f"steps took longer in {num_parts} parts than before them: no buffer is cut for its schedule any more"
            )
            return "measured", Choice(evaluator.dense, present, found, reason)
        if is_new and self._is_left_for(found, present):
            reason = f"planned anew by what was profiled, in buffers: {len(found.plan.fusion.cuts)}"
            return "profile", Choice(evaluator.dense, present, found, reason)
        if not says:
            return None
        return "profile", Choice(evaluator.dense, present, present, "the job's communication policy is Static")

    def _is_left_for(self, found: Prediction, present: Prediction) -> bool:
        """Whether buffers or a timetable that no profile was behind are replaced, or others that are worth it."""
        is_first = present.plan.timetable is None and present.plan.fusion.cuts == self._begun_with.fusion.cuts
        return found.plan != present.plan.with_version(0) and (is_first or _is_worth_it(found, present))


def _is_worth_it(found: Prediction, present: Prediction) -> bool:
    """Times are never measured twice alike; a change for their noise's sake would only be followed by the next."""
    return found.step_seconds * found.relative_steps < _WORTH_IT * present.step_seconds * present.relative_steps
