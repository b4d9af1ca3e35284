"""How far a session has come, kept in a script's own checkpoint, and going on from there.

    session = trimtab.attach(model, optimizer)
    if resuming:
        session.load_state_dict(checkpoint["session"])      # beside those of model and optimizer
    for epoch in session.epochs(90):                        # those that are left
        ...
        torch.save({"session": session.state_dict(), ...}, path)

What compression held back is kept beside it by `session.save_exchange`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from trimtab_api.errors import UserError

from trimtab.data.loops import Loops
from trimtab.data.position import Position
from trimtab.session.script_numbers import plain_counts, whole_number
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import broadcast_json


class ResumeState:
    """How far one session's loops have come."""

    def __init__(self, group: Group | None, loops: Loops, warn: Callable[[str], None]) -> None:
        """``warn`` takes a line for people."""
        self._group, self._loops, self._warn = group, loops, warn

    def epochs(self, num_epochs: int) -> Iterator[int]:
        """Return the numbers, from 0, of the epochs to train: all ``num_epochs``, or what a loaded state leaves."""
        num_epochs = whole_number(num_epochs, "session.epochs")
        before = self._loops.epochs.num_before
        if before and before >= num_epochs:
            self._warn(f"resuming: session.epochs({num_epochs}) has no epoch left to train, since {before} are over")
        return self._loops.epochs.left(num_epochs)

    def state_dict(self, step: int) -> dict[str, Any]:
        """Return how far training has come, ``step`` steps, in plain numbers; the same on every rank."""
        return self._loops.position(step).to_state()

    def load_state_dict(self, state: dict[str, Any], step: int) -> int:
        """Go on from rank 0's ``state``, and return the steps that were taken by then.

        Raises:
            UserError: ``step`` steps were taken already or a loop has begun, or this is no such state.
        """
        if step or self._loops.have_begun:
            raise UserError("comes before the first batch and the first step", field="session.load_state_dict")
        told = plain_counts(state)
        position = Position.from_state(told if self._group is None else broadcast_json(self._group, told, json.loads))
        self._loops.resume(position)
        return position.steps
