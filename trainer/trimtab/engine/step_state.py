"""The states of one training step, from its first backward pass to its end, and what leads from one to another.

    IDLE ──backward──▶ ACCUMULATING ──last backward──▶ PENDING ──optimizer.step()──▶ STEPPING ──▶ IDLE

A script may take each step, throw it away, or take one without a backward pass; `TRANSITIONS` has every case.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType


class StepState(Enum):
    """How far the present step has come."""

    IDLE = auto()
    """No backward pass has begun since the last step."""
    ACCUMULATING = auto()
    """Backward passes have begun, and none of them ends the accumulation."""
    PENDING = auto()
    """A backward pass that ends the accumulation has begun; no optimizer has stepped."""
    STEPPING = auto()
    """The script steps its optimizers by itself: the first has begun, and the last has not ended."""
    LEFT = auto()
    """Within a round of local steps, the script asked for a batch after a backward pass, and took no step."""


class StepEvent(Enum):
    """What happens to a step."""

    PASS = auto()
    """A backward pass begins."""
    LAST_PASS = auto()
    """The backward pass that has begun ends the accumulation: it is outside of `no_sync`."""
    FIRST_OPTIMIZER = auto()
    """The script begins to step the first of its optimizers."""
    LAST_OPTIMIZER = auto()
    """The script's last optimizer has stepped, or its scaler has left the rest out."""
    END = auto()
    """The step has been taken, by whomever, or was thrown away."""
    BATCH = auto()
    """Within a round, a batch is asked for after a step that was thrown away so."""


_IDLE, _ACCUMULATING, _PENDING, _STEPPING, _LEFT = StepState
_E = StepEvent
TRANSITIONS: Mapping[tuple[StepState, StepEvent], StepState] = MappingProxyType(
    {
        (_IDLE, _E.PASS): _ACCUMULATING,
        (_ACCUMULATING, _E.PASS): _ACCUMULATING,
        (_PENDING, _E.PASS): _PENDING,
        (_LEFT, _E.PASS): _ACCUMULATING,
        (_ACCUMULATING, _E.LAST_PASS): _PENDING,
        (_PENDING, _E.LAST_PASS): _PENDING,
        (_IDLE, _E.FIRST_OPTIMIZER): _STEPPING,  # a step without a backward pass
        (_ACCUMULATING, _E.FIRST_OPTIMIZER): _STEPPING,
        (_PENDING, _E.FIRST_OPTIMIZER): _STEPPING,
        (_LEFT, _E.FIRST_OPTIMIZER): _STEPPING,
        (_STEPPING, _E.LAST_OPTIMIZER): _IDLE,
        (_IDLE, _E.END): _IDLE,
        (_ACCUMULATING, _E.END): _IDLE,
        (_PENDING, _E.END): _IDLE,
        (_STEPPING, _E.END): _STEPPING,  # an optimizer has stepped, which cannot be thrown away
        (_LEFT, _E.END): _LEFT,
        (_IDLE, _E.BATCH): _LEFT,
    }
)
"""The state after each event. What is not there cannot happen, or is refused before it does."""


class StepProgress:
    """The state of one session's present step, which everything that takes part in the step shares."""

    def __init__(self) -> None:
        self._state = StepState.IDLE

    @property
    def state(self) -> StepState:
        """How far the present step has come."""
        return self._state

    def on(self, event: StepEvent) -> None:
        """Go on to the state that follows ``event``."""
        self._state = TRANSITIONS[self._state, event]

    @property
    def has_begun(self) -> bool:
        """True if a backward pass has begun, and no step has ended since."""
        return self._state in (StepState.ACCUMULATING, StepState.PENDING, StepState.STEPPING)

    @property
    def is_pending(self) -> bool:
        """True if a backward pass has ended the accumulation, and no optimizer has stepped since."""
        return self._state is StepState.PENDING
