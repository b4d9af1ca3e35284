"""Learning of exchanges, compression and gains from steps and trials, and unlearning when the network changes.

Where a schedule delays updates each step exchanges another part of a gradient, which tells nothing of the whole; and
where exchanges share an interface, each takes as long as the others let it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from trimtab.control.cost_model.convergence import reads_gain
from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.monitors.gain import GainWatch
from trimtab.control.monitors.network import Network, NetworkChange, speaks_for
from trimtab.control.monitors.recent_steps import RecentSteps, was_applied
from trimtab.control.types import ModelFacts, StepReport, TrialReport
from trimtab.plan.plan import Plan
from trimtab.plan.timeline import Timeline

#: A monitor may notice a change of the network this late [s]: steps before it are not to be learned from.
_NOTICED_LATE_SECONDS = 5.0
#: Steps whose median is a plan's compression time.
_NUM_COMPRESS_STEPS = 15


class Learner:
    """Keeps the last steps, and has the predictor learn from those that tell something."""

    def __init__(self, facts: ModelFacts) -> None:
        self.predictor = Predictor(facts)
        self._costs_a_delay = reads_gain(facts.optimizer)
        self.steps = RecentSteps()

    def loss(self, report: StepReport) -> None:
        """Learn what a step of the report's plan brings, where the script tells its loss and the step was taken.

        What compression costs SGD is a delay, which no slope of the loss shows.
        """
        if self._costs_a_delay or report.plan.delays_updates:
            return
        if report.loss is not None and was_applied(report):
            self.predictor.observe_loss(report.plan, report.loss)

    def exchange(self, report: StepReport, network: Network | None) -> float:
        """Learn computing and exchange time of a step, and return what had been predicted of the exchange [s]."""
        if network is None or report.plan.delays_updates:
            return report.collective_seconds
        predicted = self.predictor.sync_seconds(report.plan, network.latency, network.beta)
        self.predictor.observe_step(report, network.latency, network.beta)
        return predicted if self._tells_of_exchanges(report.plan) else report.collective_seconds

    def predicted(self, plan: Plan, network: Network | None) -> Timeline | None:
        """Predict a step of the plan, moment by moment; None while no network is known."""
        return None if network is None else self.predictor.timeline(plan, network.latency, network.beta)

    def compression(self, report: StepReport) -> None:
        """Learn the compression time of a step's plan."""
        recent = [under.compress_seconds for under in self.steps.under(report.plan)]
        if not report.plan.delays_updates:
            self.predictor.compress_times.observe(report.plan, median(recent[-_NUM_COMPRESS_STEPS:]), report.step)

    def gain(self, report: StepReport, gain: GainWatch) -> None:
        """Learn the gain of a step's plan, once the residual has begun to settle."""
        if gain.settled is not None:
            self.predictor.observe_gain(report.plan, gain.settled, report.step)

    def trials(self, reports: Sequence[TrialReport], network: Network | None, step: int) -> None:
        """Learn all that trials measured."""
        for report in reports:
            if not report.plan.delays_updates:
                if network is not None:
                    self.predictor.observe_step(report, network.latency, network.beta)
                self.predictor.compress_times.observe(report.plan, report.compress_seconds, step)
            if report.gain is not None:
                self.predictor.observe_trial_gain(report.plan, report.gain, step)

    def network_changed(self, change: NetworkChange, now: float) -> None:
        """Unlearn what was learned since the last network was last seen: it may have been learned on the new one."""
        since = max(change.confirmed_at, now - _NOTICED_LATE_SECONDS)
        doubtful = Counter(step.report.plan for step in self.steps if step.end > since)
        for plan, count in doubtful.items():
            if self._tells_of_exchanges(plan):
                self.predictor.forget_steps(plan, change.before.latency, change.before.beta, count)
        self.steps.network_changed()

    def speaks_for(self, suspect: Network, network: Network, plan: Plan, since: float) -> bool | None:
        """Return whether the last exchanges under a plan speak for a suspected network; None if they cannot tell.

        Args:
            suspect: The network that a view has shown.
            network: The present network.
            plan: The present plan.
            since: When the present network began; exchanges before it say nothing.
        """
        recent = [step.report for step in list(self.steps)[-2:] if step.report.plan == plan and step.end > since]
        if len(recent) < 2 or min(each.collective_seconds for each in recent) <= 0:
            return None
        if not self._tells_of_exchanges(plan):
            return None
        expected, suspected = (
            self.predictor.sync_seconds(plan, each.latency, each.beta) for each in (network, suspect)
        )
        if any(all(each.exchange_seconds(seconds) == seconds for seconds in (expected, suspected)) for each in recent):
            return None  # it may have taken the one as well as the other
        return speaks_for(median(each.collective_seconds for each in recent), expected, suspected)

    def _tells_of_exchanges(self, plan: Plan) -> bool:
        return not plan.delays_updates and not self.predictor.shares_interface(plan)
