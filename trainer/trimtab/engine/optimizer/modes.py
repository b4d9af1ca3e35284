"""Other ways to step than one step of all optimizers: the script's own changes, and optimizers that alternate.

Of alternating optimizers, as a generator's and a discriminator's, each step is one optimizer's. Only its own ``step()``
tells whose gradients count. What the others' parameters have gathered by then is theirs to clear or to use; to ranks
they are frozen for this one step, and their residuals wait.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn import Parameter

from trimtab.engine.gradients.flat_buffers import FlatBuffers


class ManualOptimizer(torch.optim.Optimizer):
    """Steps nothing: between ``backward()`` and `Session.step` the script has done so, by the means over ranks."""

    shown_as = "steps that the script takes by itself"
    """In reasons, where an optimizer's class would stand."""

    def __init__(self, parameters: Iterable[Parameter], known: torch.optim.Optimizer | None = None) -> None:
        super().__init__(parameters, {})
        self.known = known
        """The script's own optimizer, where it is known: what compression costs depends on it."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Leave the weights as they are."""


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
