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
from collections.abc import Iterator
from typing import Any, Literal

from torch import Tensor
from trimtab_api.errors import UserError

from trimtab.data.loops import Loops
from trimtab.data.position import Position
from trimtab.engine.step_engine import StepEngine
from trimtab.session.rank_ops import RankOps
from trimtab.session.script_numbers import plain_counts, whole_number
from trimtab.transport.object_collectives import broadcast_json


class ResumeState(RankOps):
    """One process among ranks that count the same steps, epochs and batches."""

    _step: int
    _loops: Loops
    _engine: StepEngine | None

    def all_reduce(self, value: float | Tensor, op: Literal["mean", "sum", "max", "min"] = "mean") -> float | Tensor:
        """See `RankOps.all_reduce`."""
        self._loops.has_evaluated_share = False
        return super().all_reduce(value, op)

    def epochs(self, num_epochs: int) -> Iterator[int]:
        """The numbers, from 0, of the epochs to train: all ``num_epochs``, or what a loaded state leaves of them."""
        num_epochs = whole_number(num_epochs, "session.epochs")
        before = self._loops.epochs.num_before
        if before and before >= num_epochs:
            self._warn(f"resuming: session.epochs({num_epochs}) has no epoch left to train, since {before} are over")
        return self._loops.epochs.left(num_epochs)

    def state_dict(self) -> dict[str, Any]:
        """How far training has come (steps, epochs, batches), in plain numbers; the same on every rank."""
        return self._loops.position(self._step).to_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where `state_dict` was taken. Every rank calls it; what counts is rank 0's ``state``.

        Weights, optimizer and scheduler are the script's to load. Raises `UserError` once a step has been taken or a
        loop has begun, and for what is no such state.
        """
        if self._step or self._loops.have_begun:
            raise UserError("comes before the first batch and the first step", field="session.load_state_dict")
        told = plain_counts(state)
        position = Position.from_state(told if self._group is None else broadcast_json(self._group, told, json.loads))
        self._step = position.steps
        self._loops.resume(position)
        if self._engine is not None:
            self._engine.plans.resume(self._engine.plan, self._step)
            self._engine.exchanger.count_from(self._step)
