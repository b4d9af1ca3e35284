"""The outer optimizer: what becomes of the mean update of a round (DiLoCo, Douillard et al., arXiv 2311.08105,
algorithm 1): SGD with Nesterov's momentum, for which a round's mean update is the gradient.

With the mean update U of a round, momentum m and rate r:

    velocity = m * velocity + U
    anchor   = anchor - r * (U + m * velocity)

A rate of 1 without momentum is plain averaging of the ranks' weights. U is the same bits on every rank, and so is the
velocity.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.engine.arena import Arena


class OuterStep:
    """The step of one rate and momentum, and its velocity."""

    def __init__(self, arena: Arena, rate: float, momentum: float) -> None:
        """``rate`` and ``momentum`` as in `torch.optim.SGD`; the velocity is 0."""
        self._arena = arena
        self.rate, self.momentum = rate, momentum
        self._velocity = torch.zeros_like(arena.grad) if momentum else None

    @torch.no_grad()
    def take(self) -> None:
        """Make every ``grad``, the mean update of a round, what is to be taken off the anchor.

        What is frozen, and has none, stays where it is: nothing of its velocity moves it, now or later.
        """
        arena = self._arena
        for parameter, offset in zip(arena.parameters, arena.offsets, strict=False):
            velocity = None if self._velocity is None else self._velocity[offset : offset + parameter.numel()]
            if parameter.grad is None:
                if velocity is not None:
                    velocity.zero_()
                continue
            update = parameter.grad
            if velocity is not None:
                velocity = velocity.view_as(update)
                velocity.mul_(self.momentum).add_(update)
                update.add_(velocity, alpha=self.momentum)
            update.mul_(self.rate)

    def state(self) -> Tensor | None:
        """float32 [n], the velocity, the same on every rank; None without momentum."""
        return self._velocity

    def load(self, state: Tensor | None) -> None:
        """Inverse of `state`, of the same momentum."""
        if self._velocity is not None and state is not None:
            self._velocity.copy_(state)
