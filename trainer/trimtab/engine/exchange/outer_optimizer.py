"""The outer optimizer: SGD with Nesterov's momentum, for which the mean update of a round is the gradient.

That is DiLoCo's (Douillard et al., arXiv 2311.08105, algorithm 1). With the mean update U of a round, momentum m and
rate r:

    velocity = m * velocity + U
    anchor   = anchor - r * (U + m * velocity)

A rate of 1 without momentum is plain averaging of the ranks' weights. U is the same bits on every rank, and so is the
velocity.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.engine.gradients.flat_buffers import FlatBuffers


class OuterOptimizer:
    """The step of one rate and momentum, and its velocity."""

    def __init__(self, flat_buffers: FlatBuffers, rate: float, momentum: float) -> None:
        """``rate`` and ``momentum`` as in `torch.optim.SGD`; the velocity is 0."""
        self.rate, self.momentum = rate, momentum
        self._parameters = flat_buffers.parameters
        self._velocity = torch.zeros_like(flat_buffers.grad)
        self._velocities = flat_buffers.views_of(self._velocity)

    @torch.no_grad()
    def take(self) -> None:
        """Make every ``grad``, the mean update of a round, what is to be taken off the anchor.

        What is frozen, and has none, stays where it is: nothing of its velocity moves it, now or later.
        """
        for parameter, velocity in zip(self._parameters, self._velocities, strict=True):
            if parameter.grad is None:
                velocity.zero_()
                continue
            velocity.mul_(self.momentum).add_(parameter.grad)
            parameter.grad.add_(velocity, alpha=self.momentum).mul_(self.rate)

    def state(self) -> Tensor:
        """Return the velocity, float32 [n]: the same on every rank."""
        return self._velocity

    def load(self, state: Tensor) -> None:
        """Load what `state` returned."""
        self._velocity.copy_(state)
