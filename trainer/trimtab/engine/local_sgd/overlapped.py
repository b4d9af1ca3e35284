"""Rounds of local steps whose updates cross while the next round computes, and are applied one round late.

Eager DiLoCo: a rank does not wait for the mean of a round's updates U(t). It goes on from where its own steps have led
it, and exchanges its update u(t) meanwhile. When U(t) arrives, at the end of round t + 1, it takes the place of u(t):

    anchor(t + 1) = anchor(t) - U(t)          the same bits on every rank
    weights       = anchor(t + 1) - u(t + 1)  the rank's own, whose mean is under way now

So each update counts once, its rank's own copy of it only until the mean is there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.local_sgd.local_sgd import LocalSgd


class OverlappedLocalSgd(LocalSgd):
    """The rounds of one plan of schedule *overlap*."""

    def __init__(self, flat_buffers: FlatBuffers, num_steps: int) -> None:
        """See `LocalSgd`; nothing is under way."""
        self._starts = [torch.empty_like(parameter) for parameter in flat_buffers.parameters]
        """By parameter: where this rank's own round began, anchor less what is under way of its own."""
        self._has_pending = False
        super().__init__(flat_buffers, num_steps)

    @property
    def is_under_way(self) -> bool:
        """True if an update has been made that the anchor does not have yet."""
        return self.num_taken > 0 or self._has_pending

    @torch.no_grad()
    def set_anchor(self) -> None:
        """Begin where the weights are, with nothing under way."""
        super().set_anchor()
        self._begin_at_weights()

    def _begin_at_weights(self, *, has_pending: bool = False) -> None:
        self._has_pending = has_pending
        for start, parameter in zip(self._starts, self._flat_buffers.parameters, strict=True):
            start.copy_(parameter)

    def state_dict(self) -> dict[str, Any]:
        """Return what is under way between two rounds; empty if nothing is."""
        if not self._has_pending:
            return {}
        return {"anchor": self._anchor, "starts": self._starts}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned, where a round begins."""
        if not state:
            return
        self._anchor.copy_(state["anchor"])
        for start, kept in zip(self._starts, state["starts"], strict=True):
            start.copy_(kept)
        self._has_pending = True

    @torch.no_grad()
    def resume(self, anchor: Tensor, num_taken: int) -> None:
        """Go on in a round that began at ``anchor``: nothing was under way, for that was brought in before."""
        super().resume(anchor, num_taken)
        self._has_pending = False
        for start, view in zip(self._starts, self._anchors, strict=True):
            start.copy_(view)

    def began_at(self) -> list[Tensor]:
        """See `LocalSgd.began_at`."""
        return self._starts

    @torch.no_grad()
    def apply(self) -> None:
        """Move the anchor by the mean that ``grad`` holds, of the round before; this round's own update is on top."""
        made_any = self.num_taken > 0
        for anchor, start, parameter in zip(self._anchors, self._starts, self._flat_buffers.parameters, strict=True):
            own = start - parameter
            if parameter.grad is not None:
                anchor.sub_(parameter.grad)
            torch.sub(anchor, own, out=parameter.data)
        self.num_taken = 0
        self._begin_at_weights(has_pending=made_any)

    @torch.no_grad()
    def rollback(self) -> None:
        """Go back to the anchor: an update was not finite, and this round's, made on top of it, goes with it."""
        super().rollback()
        self._begin_at_weights()
