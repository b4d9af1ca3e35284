"""What a change of the network, or of the plan, makes anew as a whole, so that nothing of it is reset by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab.control.gain_watch import GainWatch
from trimtab.control.guards import ResidualWatch
from trimtab.control.plan_outcome import PlanOutcome


@dataclass
class SinceNetworkChange:
    """What says nothing of another network: a change of the network makes a new one."""

    outcome: PlanOutcome
    start: float = float("-inf")
    banned: set[tuple[str, float]] = field(default_factory=set)
    """Collectives and ratios that guards have left."""


@dataclass
class SincePlanChange:
    """What says nothing of another plan: a change of the plan makes a new one."""

    gain: GainWatch
    residual: ResidualWatch = field(default_factory=ResidualWatch)
    num_steps: int = 0
