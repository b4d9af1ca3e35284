"""The progress of a run in its data: a script keeps it in its checkpoint, and a resumed run goes on there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from trimtab_api.errors import UserError


@dataclass(frozen=True)
class Position:
    """Between two steps; the same on every rank."""

    steps: int = 0
    """Training steps taken."""
    epochs: int = 0
    """Epochs of `Session.epochs` that are over."""
    loops: int = 0
    """Loops over `Session.batches` that are over; their number decides how the next one shuffles."""
    batches: int = 0
    """Batches that the next loop has trained on already."""
    of_batches: int | None = None
    """Number of that loop's batches; None where its loader cannot say."""

    def to_state(self) -> dict[str, Any]:
        """Return plain numbers."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Any) -> Position:
        """Read what `to_state` returned. Raise `UserError` for anything else."""
        known = cls().to_state()
        if not isinstance(state, dict) or set(state) != set(known):
            raise UserError("is no state of a session; hand over what session.state_dict() gave", field="state")
        for name, value in state.items():
            is_count = type(value) is int and value >= 0
            if not is_count and (value is not None or name != "of_batches"):
                raise UserError("is a count, 0 or more", field=f"state.{name}", value=str(value))
        return cls(**state)


class Epochs:
    """The epochs that a script counts by `Session.epochs`."""

    def __init__(self) -> None:
        self._next, self._present, self._has_trained = 0, 0, False

    @property
    def num_before(self) -> int:
        """Epochs that an earlier run has trained, where the next call of `left` leaves them out."""
        return self._next

    def left(self, num_epochs: int) -> Iterator[int]:
        """Yield the numbers, from 0, of epochs to train; the first call after `resume` leaves out finished ones."""
        first, self._next = self._next, 0
        for epoch in range(first, num_epochs):
            self._present, self._has_trained = epoch, False
            yield epoch
        self._present, self._has_trained = max(first, num_epochs), False

    def stepped(self) -> None:
        """Note that a step of the present epoch stays."""
        self._has_trained = True

    def num_over(self, *, in_loop: bool) -> int:
        """Count the epochs that are over: the present one too, once it has trained and no loop of it is under way."""
        return self._present + (self._has_trained and not in_loop)

    def resume(self, num_over: int) -> None:
        """Go on after so many."""
        self._next, self._present, self._has_trained = num_over, num_over, False
