"""An optimizer's state, put back bit for bit.

`Optimizer.load_state_dict` brings state to its parameter's dtype, so what an optimizer keeps in bfloat16 or as whole
numbers comes back as float32; here every value comes back as it was.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor


class OptimizerState:
    """The state of an optimizer at one time, hyperparameters included; may be restored any number of times."""

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


def _without_parameters(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


@torch.no_grad()
def _put_back(live: Any, kept: Any) -> Any:
    """``kept``, in the tensors of ``live`` where these still fit."""
    if isinstance(kept, Tensor):
        if isinstance(live, Tensor) and (live.shape, live.dtype, live.device) == (kept.shape, kept.dtype, kept.device):
            live.copy_(kept)
            return live
        return kept.clone()
    if type(kept) is dict and isinstance(live, dict):
        return {name: _put_back(live.get(name), value) for name, value in kept.items()}
    return copy.deepcopy(kept)
