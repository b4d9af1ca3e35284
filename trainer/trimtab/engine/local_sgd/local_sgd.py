"""Source *update*: every rank's own optimizer acts first, and what crosses the network is the update that it made.

All ranks start a round at the same weights, the *anchor*. Each takes H steps of its own; what is exchanged then is
anchor - weights, error feedback included, and afterwards every rank is at anchor - mean update, the next anchor (QAdam
and 1-bit Adam for H = 1, DiLoCo and SparseLoCo, arXiv 2508.15706, for H > 1; with plain averaging outside, unless the
plan names another `outer_step`). Adam divides by the root of what arrives in lumps: error feedback on gradients costs
it a factor, on updates much less. Optimizer state and buffers stay each rank's own; how Adam's second moments are kept
is `second_moments`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.gradients.norms import norms_of


class LocalSgd:
    """The rounds of one plan."""

    def __init__(self, flat_buffers: FlatBuffers, num_steps: int) -> None:
        """Take the present weights, alike on all ranks, for the first anchor; ``num_steps`` is H, steps of a round."""
        self._flat_buffers = flat_buffers
        self.num_steps = num_steps
        """Steps of a round: H."""
        self.num_taken = 0
        """Steps of the present round."""
        self._learning: set[int] = set()
        """Tensors, by index, that the round began to train."""
        self._anchor = torch.empty_like(flat_buffers.grad)
        self._anchors = flat_buffers.views_of(self._anchor)
        self.set_anchor()

    @property
    def anchor(self) -> Tensor:
        """Weights at which the round began, float32 [n]: the same on every rank."""
        return self._anchor

    @property
    def is_round_over(self) -> bool:
        """True if the round's exchange comes next."""
        return self.num_taken >= self.num_steps

    @torch.no_grad()
    def set_anchor(self) -> None:
        """Begin a round where the weights are."""
        self.num_taken = 0
        torch._foreach_copy_(self._anchors, list[Tensor](self._flat_buffers.parameters))

    def last(self, num_steps: int) -> None:
        """Make this round and the next ones ``num_steps`` steps long."""
        self.num_steps = num_steps

    def count_step(self) -> None:
        """Count a step of the round."""
        if self.num_taken == 0:
            self._note_learning()
        self.num_taken += 1

    def _note_learning(self) -> None:
        self._learning = {index for index, each in enumerate(self._flat_buffers.parameters) if each.requires_grad}

    @property
    def is_under_way(self) -> bool:
        """True if an update has been made that the anchor does not have yet."""
        return self.num_taken > 0

    def state_dict(self) -> dict[str, Any]:
        """Return what is under way between two rounds."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned, where a round begins."""

    @torch.no_grad()
    def resume(self, anchor: Tensor, num_taken: int) -> None:
        """Go on in a round that began at ``anchor`` (float32 [n]), after ``num_taken`` of its steps."""
        self._anchor.copy_(anchor)
        self.num_taken = num_taken
        self._note_learning()

    @contextlib.contextmanager
    def at_anchor(self) -> Iterator[None]:
        """Give the model, inside, the anchor's weights; afterwards this rank's own again, to the last bit."""
        own = [parameter.detach().clone() for parameter in self._flat_buffers.parameters]
        with torch.no_grad():
            torch._foreach_copy_(list[Tensor](self._flat_buffers.parameters), self._anchors)
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(list[Tensor](self._flat_buffers.parameters), own)

    def non_finite_gradients(self) -> tuple[str, ...]:
        """Return the names of parameters whose own gradient is not finite: then this rank leaves the step out."""
        names, parameters = self._flat_buffers.names, self._flat_buffers.parameters
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not grads or bool(torch.isfinite(torch.stack(norms_of(grads))).all()):  # a GPU is waited for once
            return ()
        return tuple(
            name
            for name, parameter in zip(names, parameters, strict=True)
            if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all())
        )

    def began_at(self) -> list[Tensor]:
        """Return, by parameter, the weights at which this rank's own round began."""
        return self._anchors

    @torch.no_grad()
    def put_updates(self) -> None:
        """Make every ``grad`` the update of this round: what the exchange then takes for a gradient.

        Also of what was frozen within the round, on every rank at the same step: it had learned until then.
        """
        flat_buffers = self._flat_buffers
        learned = self._learning if self.num_taken > 0 else set[int]()
        trains = [each.requires_grad for each in flat_buffers.parameters]
        flat_buffers.note_frozen_in_round({index for index in learned if not trains[index]})
        ranges = zip(self.began_at(), flat_buffers.views, flat_buffers.parameters, strict=True)
        for index, (began_at, view, parameter) in enumerate(ranges):
            parameter.grad = None
            if trains[index] or index in learned:
                torch.sub(began_at, parameter, out=view)
                parameter.grad = view

    @torch.no_grad()
    def apply(self) -> None:
        """Bring the weights to the anchor less the update that ``grad`` holds, and begin the next round there."""
        for anchor, parameter in zip(self._anchors, self._flat_buffers.parameters, strict=True):
            if parameter.grad is None:
                parameter.copy_(anchor)
            else:
                torch.sub(anchor, parameter.grad, out=parameter.data)
        self.set_anchor()

    @torch.no_grad()
    def rollback(self) -> None:
        """Go back to the anchor, where the next round begins: an update was not finite."""
        for anchor, parameter in zip(self._anchors, self._flat_buffers.parameters, strict=True):
            parameter.copy_(anchor)
        self.num_taken = 0
