"""What a scheme that selects on the way does to its accumulated gradient, noted so that it can be undone.

The accumulated gradient serves as the sum under way: received values are added to it, selections taken out of it. At
the end each element must be what it was, unless it got through. Notes of what was changed are as long as what was sent
and received; a copy of all would cost two more passes over the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.wire.pairs import Pairs


class ResidualLog:
    """Changes ``acc`` (float32 [n]), and notes how to take the changes back."""

    def __init__(self, acc: Tensor) -> None:
        self._acc = acc
        self._notes: list[Pairs] = []
        self._own: list[Tensor] = []

    def add(self, pairs: Pairs) -> None:
        """Add what was received, or what is given back."""
        before = kernels.take(self._acc, pairs.indices)
        self._notes.append(Pairs(pairs.indices, before))
        kernels.put(self._acc, pairs.indices, before + pairs.values)

    def note_taken(self, pairs: Pairs) -> None:
        """A selection was taken out, and zeros are left in its place; once an element."""
        self._notes.append(pairs)
        self._own.append(pairs.indices)

    @property
    def num_taken(self) -> int:
        """Elements that were taken out."""
        return sum(indices.numel() for indices in self._own)

    def taken(self) -> Tensor:
        """int32 [m], ascending: all that was taken out."""
        return torch.cat(self._own).sort().values

    def settle(self, kept: Tensor) -> float:
        """Undo all but what is left at ``kept`` (int32 [m], unique); returns the squared norm that acc lost by it.

        Negative where more is left at ``kept`` than was there at first.
        """
        left = kernels.take(self._acc, kept)
        self.undo()
        at_first = kernels.take(self._acc, kept)
        kernels.put(self._acc, kept, left)
        return kernels.squared_norm(at_first) - kernels.squared_norm(left)

    def undo(self) -> None:
        """Take every change back, the last first: acc has the bits that it had."""
        for pairs in reversed(self._notes):
            kernels.put(self._acc, pairs.indices, pairs.values)
        self._notes.clear()
