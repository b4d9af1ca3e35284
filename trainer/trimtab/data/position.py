"""The progress of a run in its data: a script keeps it in its checkpoint, and a resumed run goes on there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from trimtab_api.errors import UserError

Order = Literal["", "seed", "generators"]
"""What decides in which order an epoch is drawn: the run's seed, alike for any number of ranks; the generators of a
single process; or something that is not known here."""


@dataclass(frozen=True)
class Drawing:
    """How ranks draw an epoch: in one order, of which they take equal shares together."""

    ranks: int
    """How many share it out."""
    order: Order = ""
    total: int | None = None
    """Samples of the epoch, or batches where these are shared out; None where the loader cannot say."""
    batch: int = 1
    """How many of them a batch of one rank takes."""
    unit: str = "samples"
    before: int = 0
    """How many of them an earlier number of ranks has drawn."""
    is_shareable: bool = False
    """True if any number of ranks can draw it in the order that the seed decides, and share that out."""

    def drawn(self, batches: int, num_batches: int | None) -> int:
        """Return how many all ranks together have drawn, from the epoch's beginning on.

        Args:
            batches: That each rank has had of its share.
            num_batches: Of its share.
        """
        if not self.order:
            return 0
        if self.total is not None and batches == num_batches:
            return self.total
        return self.before + batches * self.batch * self.ranks


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
    ranks: int = 0
    """Number of ranks; 0 where it is not known, in a state of an earlier version."""
    order: Order = ""
    """What decides the order of that loop."""
    drawn: int = 0
    """Samples of that loop that all ranks together have trained on, or batches where these are shared out: the first of
    its order, whatever the numbers of ranks that drew them."""
    drawn_before: int = 0
    """Those of them that an earlier number of ranks drew."""
    of_drawn: int | None = None
    """Samples, or batches, of the whole epoch; None where its loader cannot say."""

    def to_state(self) -> dict[str, Any]:
        """Return plain numbers and text."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Any) -> Position:
        """Read what `to_state` returned. Raise `UserError` for anything else."""
        known = {each.name for each in fields(cls)}
        if not isinstance(state, dict) or not _OF_FIRST_VERSION <= set(state) <= known:
            raise UserError("is no state of a session; hand over what session.state_dict() gave", field="state")
        for name, value in state.items():
            if name == "order":
                if value not in get_args(Order):
                    raise UserError("is no order that this version knows", field="state.order", value=str(value))
                continue
            is_count = type(value) is int and value >= 0
            if not is_count and (value is not None or name not in ("of_batches", "of_drawn")):
                raise UserError("is a count, 0 or more", field=f"state.{name}", value=str(value))
        return cls(**state)


#: Fields that every state has.
_OF_FIRST_VERSION = {"steps", "epochs", "loops", "batches", "of_batches"}


class Epochs:
    """The epochs that a script counts by `Session.epochs`."""

    def __init__(self) -> None:
        self._next, self._present, self._has_trained = 0, 0, False
        self.are_counted = False
        """True if the script has asked for their numbers."""

    @property
    def num_before(self) -> int:
        """Epochs that an earlier run has trained, where the next call of `left` leaves them out."""
        return self._next

    def left(self, num_epochs: int) -> Iterator[int]:
        """Yield the numbers, from 0, of epochs to train; the first call after `resume` leaves out finished ones."""
        first, self._next, self.are_counted = self._next, 0, True
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
