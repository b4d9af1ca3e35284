"""The loop on rank 0: observe, and say what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.control.types import Action, ControllerSettings, ModelFacts, NetworkView, StepReport, TrialReport
from trimtab.plan import Plan


class Controller:
    """Chooses the plan while training. Rank 0 only; ``now`` is seconds on any monotonic clock."""

    plan: Plan
    """The present plan: adopt it before the first step."""

    def __init__(self, settings: ControllerSettings, facts: ModelFacts, seed: int = 0) -> None:
        raise NotImplementedError

    def observe_network(self, view: NetworkView, now: float) -> None:
        """A new revision of the network, whenever the monitor sends one."""
        raise NotImplementedError

    def observe_step(self, report: StepReport, now: float) -> None:
        """A training step has ended."""
        raise NotImplementedError

    def next_action(self, now: float, steps_left_in_epoch: int) -> Action:
        """What to do between two steps; ask once after each `observe_step`."""
        raise NotImplementedError

    def observe_trials(self, reports: Sequence[TrialReport], now: float) -> None:
        """The trials asked for have run (some or all) and everything is restored; empty when they were refused."""
        raise NotImplementedError

    @property
    def wants_probe(self) -> bool:
        """Whether the collective's time no longer fits the network view: ask the monitor to measure now."""
        raise NotImplementedError

    def drain_log(self) -> list[dict[str, Any]]:
        """The lines of ``decisions.jsonl`` since the last call, in order."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Everything learned and decided so far, as JSON data."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`; overheads, caches and the plan survive a restart, the clock does not."""
        raise NotImplementedError
