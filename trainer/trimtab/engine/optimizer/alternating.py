"""Optimizers that step by turns, as those of a generator and a discriminator do: each step is of one of them.

Its turn begins with the optimizer's own ``step()``: only then it is known whose gradients count. What the others'
parameters have gathered by then (a generator's loss leaves gradients in the discriminator) is theirs to clear or to
use; to ranks they are frozen for this one step, and their residuals wait.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from trimtab.engine.gradients.flat_buffers import FlatBuffers


@contextlib.contextmanager
def only_parameters_of(optimizer: torch.optim.Optimizer, flat_buffers: FlatBuffers) -> Iterator[None]:
    """Leave to an exchange the gradients of ``optimizer``'s parameters alone; the others' are afterwards as before."""
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    others = [
        parameter for parameter in flat_buffers.parameters if parameter.requires_grad and id(parameter) not in own
    ]
    kept = [(parameter, flat_buffers.kept(parameter.grad)) for parameter in others]
    for parameter, _ in kept:
        parameter.requires_grad_(False)
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, grad in kept:
            parameter.requires_grad_(True)
            parameter.grad = grad
