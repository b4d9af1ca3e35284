"""The static controller: the plan stays; its buffers and its timetable are made anew by what is profiled.

What its steps and dense's should take is said, so that who watches the job can tell whether the plan pays: once steps
were profiled and the network is known, again when more steps have told what they take, and when the network changes.
A change of the network changes what exchanges take; a host that has become slow is not what was promised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trimtab.control.controller import Controller
from trimtab.control.decision import Prediction
from trimtab.control.learning import Learner
from trimtab.control.monitors.network import Network
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.plan_outcome import sends_in_more_parts
from trimtab.control.search.selection import Choice
from trimtab.control.types import Action, ControllerSettings, KeepGoing, ModelFacts, StepReport, TrialReport
from trimtab.plan.plan import Plan
from trimtab.plan.profile import Profile
from trimtab.run_files.schema import Trigger

#: What exchanges are counted from where the network is not measured: what they take is learned.
NOMINAL_NETWORK = Network(0, 1e-3, 125e6)

#: A plan that was planned by an earlier profile is left for one that takes less than this share of its time to target.
_WORTH_IT = 0.95
#: Steps, and seconds of them, after which what was said is said again: the first come before processors and monitors
#: have settled.
_SETTLED_STEPS, _SETTLED_SECONDS = 50, 10.0


class StaticPolicy:
    """Learns what exchanges take, and says when the plan is to be planned anew."""

    def __init__(self, learner: Learner, begun_with: Plan) -> None:
        self._learner, self._begun_with = learner, begun_with
        self._planned_with = learner.predictor.profile
        self._has_said = False
        """True if it was said what steps should take on the job's network."""
        self._steps_seconds: tuple[int, float] | None = None
        """Number and seconds of the steps since that was first said, until it is said once more."""
        self._promised_compute = 0.0
        """Computation of a step [s], as it was said when steps had last told it."""
        self._is_cut_too_fine = False

    def observe_step(self, report: StepReport, network: Network | None) -> None:
        """Learn from a training step that tells what its plan takes."""
        if self._steps_seconds is not None:
            steps, seconds = self._steps_seconds
            self._steps_seconds = steps + 1, seconds + report.step_seconds
        self._learner.exchange(report, network or NOMINAL_NETWORK)
        if not report.plan.is_dense:
            self._learner.compression(report)

    def parts_underperform(self) -> None:
        """Have the plan planned without its parts: steps have turned out longer in these than before."""
        self._is_cut_too_fine = True

    def look(
        self, renew: Callable[[Network], PlanEvaluator], network: Network | None, *, has_network_moved: bool
    ) -> tuple[Trigger, Choice] | None:
        """Return what is to be written down, if anything: the same plan in other buffers, or that it stays as it is.

        That it stays is written down when steps were profiled and the network is known, once more some steps later, and
        whenever the network has moved since something was written.

        Args:
            renew: Has the plan planned by what is known. It is asked once for each profile, if the plan's parts
                underperform, and if something is to be said.
            network: The present network; None if it is not known.
            has_network_moved: Whether it is another than when something was last written.
        """
        profile = self._learner.predictor.profile
        is_new, says = profile is not self._planned_with, self._says(network, has_network_moved)
        is_cut_too_fine, self._is_cut_too_fine = self._is_cut_too_fine, False
        if profile is None or not (is_new or says or is_cut_too_fine):
            return None
        self._planned_with = profile
        if says == "profile":
            self._has_said, self._steps_seconds = True, (0, 0.0)
        elif says == "warm-up":
            self._steps_seconds = None
        evaluator = renew(network or NOMINAL_NETWORK)
        change = self._change(evaluator, is_new=is_new, is_cut_too_fine=is_cut_too_fine)
        if change is not None or says in ("profile", "warm-up"):
            self._promised_compute = evaluator.dense.compute_seconds
        if change is not None or says is None:
            return change
        slower = evaluator.dense.compute_seconds - self._promised_compute
        dense, present = (
            replace(each, step_seconds=each.step_seconds - slower) for each in (evaluator.dense, evaluator.present)
        )
        return says, Choice(dense, present, present, "the job's communication policy is Static")

    def _change(
        self, evaluator: PlanEvaluator, *, is_new: bool, is_cut_too_fine: bool
    ) -> tuple[Trigger, Choice] | None:
        """Return the same plan in other buffers, by a new profile or because the present ones are cut too fine."""
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
        return None

    def _says(self, network: Network | None, has_network_moved: bool) -> Trigger | None:
        """Return why to say what steps should take, if at all; of dense there is nothing to say."""
        if self._begun_with.is_dense or network is None:
            return None
        if not self._has_said:
            return "profile"
        steps, seconds = self._steps_seconds or (0, 0.0)
        if steps >= _SETTLED_STEPS and seconds >= _SETTLED_SECONDS:
            return "warm-up"
        return "network" if has_network_moved else None

    def _is_left_for(self, found: Prediction, present: Prediction) -> bool:
        """Return whether the present buffers are replaced: no profile was behind them, or others are worth it."""
        is_first = present.plan.timetable is None and present.plan.fusion.cuts == self._begun_with.fusion.cuts
        return found.plan != present.plan.with_version(0) and (is_first or _is_worth_it(found, present))


def _is_worth_it(found: Prediction, present: Prediction) -> bool:
    """Return whether a plan is so much sooner at the target that it is not by noise alone.

    Times are never measured twice alike; a change for their noise's sake would only be followed by the next.
    """
    return (
        found.step_seconds * found.convergence_slowdown
        < _WORTH_IT * present.step_seconds * present.convergence_slowdown
    )


class StaticController(Controller):
    """Keeps the plan; its buffers and its timetable are made anew by what is profiled."""

    def __init__(self, settings: ControllerSettings, facts: ModelFacts, seed: int = 0) -> None:
        """See `Controller`."""
        super().__init__(settings, facts, seed)
        self._policy = StaticPolicy(self._learner, self.plan)
        self._warning: str | None = None
        self._has_warned = False
        """True if it was said that the residual grows without bound."""

    def _learn(self, report: StepReport, now: float) -> None:
        self._watch_residual(report)
        if self._learner.steps.add(report, now):
            self._policy.observe_step(report, self._network_estimator.network)
            self._review(now)

    def _watch_residual(self, report: StepReport) -> None:
        if self._has_warned or not report.finite or report.gain is None or report.plan.is_dense:
            return
        self._since_plan.residual.observe(report.residual_norm, report.gain)
        if growth := self._since_plan.residual.growth():
            self._has_warned = True
            self._warning = (
                f"{growth} under the plan {report.plan.name}, which the job's Static policy keeps; lower the learning"
                " rate, send more by a larger ratio, or let spec.communication.policy be Adaptive, which leaves"
                " such a plan for dense"
            )

    def take_warning(self) -> str | None:
        """See `Controller.take_warning`."""
        warning, self._warning = self._warning, None
        return warning

    def _plan_underperforms(self, *, has_more_parts: bool) -> None:
        if has_more_parts:
            self._policy.parts_underperform()

    def observe_profile(self, profile: Profile, now: float) -> None:
        """See `Controller.observe_profile`."""
        self._learner.predictor.observe_profile(profile)

    def observe_trials(self, reports: Sequence[TrialReport], now: float) -> None:
        """Take no reports: trials are never asked for."""

    def next_action(self, now: float, steps_left_in_epoch: int) -> Action:
        """See `Controller.next_action`."""
        network = self._network_estimator.network
        due = self._policy.look(self._renew, network, has_network_moved=self._network_estimator.has_moved(now))
        return self._carry_out(*due, network or NOMINAL_NETWORK, now) if due else KeepGoing()
