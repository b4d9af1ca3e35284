"""State that a change of the network, or of the plan, replaces as a whole, so that none of it is reset by itself."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from trimtab.control.monitors.gain import GainWatch
from trimtab.control.monitors.guards import ResidualWatch
from trimtab.control.plan_outcome import PlanOutcome
from trimtab.control.search.selection import ExcludedPlans
from trimtab.control.types import StepReport


@dataclass
class SinceNetworkChange:
    """State that holds on the present network alone: a change of the network makes a new one."""

    outcome: PlanOutcome
    start: float = float("-inf")
    excluded_plans: set[ExcludedPlans] = field(default_factory=set)
    """Plans that guards have left, or that were left because their steps bring much less than the law promised."""
    may_cut: bool = True
    """True if schedules may choose parts: not once steps in parts have turned out longer."""

    def forbid_cuts(self) -> None:
        """Have schedules choose no parts: steps in parts have turned out longer."""
        self.may_cut = False

    def exclude(self, plans: Set[ExcludedPlans]) -> None:
        """Choose none of these on this network."""
        self.excluded_plans |= plans


@dataclass
class SincePlanChange:
    """State that holds under the present plan alone: a change of the plan makes a new one."""

    gain: GainWatch
    residual: ResidualWatch = field(default_factory=ResidualWatch)
    num_steps: int = 0

    def count_steps(self, num: int) -> None:
        """Count so many more steps under the plan."""
        self.num_steps += num

    def compressed(self, report: StepReport) -> None:
        """Record what a step under a sparse plan has sent, and what it has held back."""
        if report.gain is not None:
            self.residual.observe(report.residual_norm, report.gain)
            self.gain.observe(report.gain)
