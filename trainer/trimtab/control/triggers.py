"""Reasons to open the choice of plan, for the first time and again, and when each is due."""

from __future__ import annotations

from trimtab.control.decision import Prediction
from trimtab.run_files.schema import Trigger

#: Steps after which the choice for a new network is looked at again, in the light of what they took.
_SETTLED_STEPS = 8
#: Steps that tell enough of machine and network to weigh sources that were not open to choice before.
_FIRST_STEPS = 2


#: Longest warm-up in seconds; it is a few steps before the first choice by what was measured.
_LONGEST_WARMUP = 1.0


def warmup_steps(prediction: Prediction, wanted: int) -> int:
    """Return how many steps of a plan the warm-up takes: fewer the slower they are, none where a few cost a run."""
    return min(int(_LONGEST_WARMUP / prediction.step_seconds), wanted)


class Triggers:
    """The order of precedence among the reasons to decide, and when each is due.

    The warm-up comes before all others; then what a guard or trials have queued; a change of network; a second look at
    the last choice; and gain and progress, which wait while a second look is near, for until then steps say little.
    """

    def __init__(self) -> None:
        self.is_warm = False
        """True if the warm-up is over."""
        self._queued: Trigger | None = None
        self._second_look: tuple[Trigger, int] | None = None
        """The second look's reason, and the step at which it is due."""
        self._more_choice_at: int | None = None

    @property
    def is_settled(self) -> bool:
        """True if the warm-up is over, and nothing is queued nor to be looked at again."""
        return self.is_warm and self._queued is None and self._second_look is None

    def resume(self, *, is_warm: bool) -> None:
        """Go on with the warm-up over, or not."""
        self.is_warm = is_warm

    def queue(self, trigger: Trigger) -> None:
        """Decide at the next opportunity."""
        self._queued = trigger

    def request_decision(self, trigger: Trigger, step: int) -> None:
        """Decide at a step, if nothing else has asked for a second look by then."""
        self._second_look = (trigger, step)

    def allow_local_sgd(self, step: int) -> None:
        """Open further sources to choice from a step on: after a choice without them, a new one is due soon.

        What waits in residuals until then crosses whole if the source changes, and steps are slow meanwhile.
        """
        if self.is_warm:
            self._more_choice_at = step + _FIRST_STEPS

    def fell_back(self) -> None:
        """Queue the decision that is due when a guard's hold of dense ends, and drop any second look before."""
        self._queued, self._second_look = "guard", None

    def due(
        self,
        step: int,
        *,
        is_warmed_up: bool,
        has_network_moved: bool,
        has_gain_moved: bool,
        has_progress_moved: bool = False,
    ) -> Trigger | None:
        """Return the reason to decide at this step, if there is one; it counts as acted upon.

        Args:
            step: The present step.
            is_warmed_up: Whether enough steps have passed for the warm-up to be over.
            has_network_moved: Whether the network is another than the plan was chosen for.
            has_gain_moved: Whether the gain has moved, and nothing speaks against acting upon it.
            has_progress_moved: Whether experiments or the loss have news, and nothing speaks against acting upon it.
        """
        if not self.is_warm:
            if not is_warmed_up:
                return None
            self.is_warm = True
            self.request_decision("warm-up", step + _SETTLED_STEPS)
            return "warm-up"
        if self._queued is not None:
            trigger, self._queued = self._queued, None
            return trigger
        if self._more_choice_at is not None and step >= self._more_choice_at:
            self._more_choice_at = None
            return "warm-up"
        if has_network_moved:
            self.request_decision("network", step + _SETTLED_STEPS)
            return "network"
        if self._second_look is None:
            return "gain" if has_gain_moved else "progress" if has_progress_moved else None
        trigger, due_at = self._second_look
        if step < due_at:
            return None
        self._second_look = None
        return trigger
