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

from trimtab.checkpoint.random_state import RandomState
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.local_sgd.buffer_sync import put_back


class OptimizerState:
    """The state of an optimizer at one time, hyperparameters included; may be restored any number of times.

    `Optimizer.load_state_dict` brings state to its parameter's dtype, so what an optimizer keeps in bfloat16 or as
    whole numbers comes back as float32; here every value comes back as it was.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._state = {key: copy.deepcopy(held) for key, held in optimizer.state.items()}
        self._groups = [_without_parameters(group) for group in optimizer.param_groups]
        self._groups = copy.deepcopy(self._groups)
        self._parameters = [list(group["params"]) for group in optimizer.param_groups]

    def restore(self) -> None:
        """Put everything back; tensors that are still there keep their identity."""
        state = self._optimizer.state
        for key in [key for key in state if key not in self._state]:
            del state[key]
        for key, kept in self._state.items():
            state[key] = _put_back(state.get(key), kept)
        groups = self._optimizer.param_groups
        del groups[len(self._groups) :]
        for group, kept, parameters in zip(groups, self._groups, self._parameters, strict=True):
            for name in [name for name in group if name != "params" and name not in kept]:
                del group[name]
            for name, value in kept.items():
                group[name] = _put_back(group.get(name), value)
            group["params"] = list(parameters)


class Stateful(Protocol):
    """Anything with torch's pair of state methods: schedulers, scalers, selectors."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Take over what `state_dict` returned."""
        ...


@dataclass(frozen=True)
class TrainingState:
    """The objects that hold the state of a training run."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    flat_buffers: FlatBuffers
    others: Callable[[], Sequence[Stateful | torch.optim.Optimizer]]
    """Schedulers, scalers, selectors, further optimizers, as they are when a snapshot is taken."""


class Snapshot:
    """The state at one time; may be restored any number of times."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._tensors = [tensor.detach().clone() for tensor in self._live_tensors()]
        self._buffers = [
            (module, name, buffer.detach().clone())
            for module in state.model.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        self._set_aside = {index: kept.clone() for index, kept in state.flat_buffers.set_aside.items()}
        others = state.others()
        self._optimizers = [
            OptimizerState(each) for each in (state.optimizer, *others) if isinstance(each, torch.optim.Optimizer)
        ]
        self._others = [
            (each, copy.deepcopy(each.state_dict())) for each in others if not isinstance(each, torch.optim.Optimizer)
        ]
        self._training_modes = [module.training for module in state.model.modules()]
        self._trained = [parameter.requires_grad for parameter in state.model.parameters()]
        self._random = RandomState.capture()

    def restore(self) -> None:
        """Put everything back as it was when the snapshot was taken."""
        self.restore_learned()
        for module, mode in zip(self._state.model.modules(), self._training_modes, strict=True):
            module.training = mode
        for parameter, trained in zip(self._state.model.parameters(), self._trained, strict=True):
            parameter.requires_grad_(trained)
        self._random.restore()

    def restore_learned(self) -> None:
        """Put back what training has changed; what the script sets (modes, frozen parameters), and generators, stay."""
        with torch.no_grad():
            for live, kept in zip(self._live_tensors(), self._tensors, strict=True):
                live.copy_(kept)
            for module, name, kept in self._buffers:
                put_back(module, name, kept)
        self._state.flat_buffers.load_set_aside(self._set_aside)
        for optimizer in self._optimizers:
            optimizer.restore()
        for other, kept_state in self._others:  # which may keep references to what it loads
            other.load_state_dict(copy.deepcopy(kept_state))
        self._state.flat_buffers.release_gradients()

    def restore_generators(self) -> None:
        """Put back the random generators alone."""
        self._random.restore()

    def _live_tensors(self) -> Iterator[Tensor]:
        yield from self._state.model.parameters()
        yield self._state.flat_buffers.residual


def _without_parameters(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


@torch.no_grad()
def _put_back(live: Any, kept: Any) -> Any:
    """Return ``kept``, in the tensors of ``live`` where these still fit."""
    if isinstance(kept, Tensor):
        if isinstance(live, Tensor) and (live.shape, live.dtype, live.device) == (kept.shape, kept.dtype, kept.device):
            live.copy_(kept)
            return live
        return kept.clone()
    if type(kept) is dict and isinstance(live, dict):
        return {name: _put_back(live.get(name), value) for name, value in kept.items()}
    return copy.deepcopy(kept)
