"""An in-memory snapshot of everything that a training step changes, for trials.

Restoring leaves training as if the steps since had never been: weights, buffers, optimizer, scheduler, scaler,
generators, residuals and sparsifier state, bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trimtab.arena import Arena
from trimtab.checkpoint.random_state import RandomState


class Stateful(Protocol):
    """Anything with torch's pair of state methods: schedulers, scalers, selectors."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Inverse of `state_dict`."""
        ...


@dataclass(frozen=True)
class TrainingState:
    """Where the state of a training run lives."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    arena: Arena
    others: Callable[[], Sequence[Stateful]]
    """Schedulers, scalers, selectors, as they are when a snapshot is taken."""


class Snapshot:
    """The state at one time; may be restored any number of times."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._tensors = [tensor.detach().clone() for tensor in self._live_tensors()]
        self._optimizer = copy.deepcopy(state.optimizer.state_dict())
        self._others = [(other, copy.deepcopy(other.state_dict())) for other in state.others()]
        self._training_modes = [module.training for module in state.model.modules()]
        self._random = RandomState.capture()

    def restore(self) -> None:
        """Put everything back as it was when the snapshot was taken."""
        with torch.no_grad():
            for live, kept in zip(self._live_tensors(), self._tensors, strict=True):
                live.copy_(kept)
        # Optimizers keep references to what they load, so each restore hands out a copy of its own.
        self._state.optimizer.load_state_dict(copy.deepcopy(self._optimizer))
        for other, kept_state in self._others:
            other.load_state_dict(copy.deepcopy(kept_state))
        for module, mode in zip(self._state.model.modules(), self._training_modes, strict=True):
            module.training = mode
        self._state.arena.release_gradients()
        self._random.restore()

    def _live_tensors(self) -> Iterator[Tensor]:
        yield from self._state.model.parameters()
        yield from self._state.model.buffers()
        yield self._state.arena.residual
