"""A log of the changes to an accumulated gradient, so that they can be undone (SparDL, section 3.2).

The accumulated gradient serves as the sum under way: received values are added to it, selections taken out of it. At
the end each element must be what it was, unless it is in the mean. The log is as long as what was sent and received; a
copy of the gradient would cost two more passes over it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.wire.pairs import Pairs


class ResidualLog:
    """Changes ``acc`` (float32 [n]), and can take the changes back."""

    def __init__(self, acc: Tensor) -> None:
        self._acc = acc
        self._notes: list[Pairs] = []
        self._own: list[Tensor] = []

    def add(self, pairs: Pairs) -> None:
        """Add pairs that were received or given back."""
        before = kernels.take(self._acc, pairs.indices)
        self._notes.append(Pairs(pairs.indices, before))
        kernels.put(self._acc, pairs.indices, before + pairs.values)

    def note_taken(self, pairs: Pairs) -> None:
        """Note that a selection was taken out and zeros are left in its place; once an element."""
        self._notes.append(pairs)
        self._own.append(pairs.indices)

    @property
    def num_taken(self) -> int:
        """Number of elements that were taken out."""
        return sum(indices.numel() for indices in self._own)

    def taken(self) -> Tensor:
        """Return the indices of all elements that were taken out: int32 [m], ascending."""
        return torch.cat(self._own).sort().values

    def settle(self, kept: Tensor) -> float:
        """Undo all changes but those at ``kept`` (int32 [m], unique).

        Returns:
            The squared norm that acc lost; negative if more is left at ``kept`` than was there at first.
        """
        left = kernels.take(self._acc, kept)
        self.undo()
        at_first = kernels.take(self._acc, kept)
        kernels.put(self._acc, kept, left)
        return kernels.squared_norm(at_first) - kernels.squared_norm(left)

    def undo(self) -> None:
        """Take every change back, the last first, so that acc has the bits that it had."""
        for pairs in reversed(self._notes):
            kernels.put(self._acc, pairs.indices, pairs.values)
        self._notes.clear()
