"""A GradScaler's loss scale, undone before gradients enter the exchange and judged by all ranks together."""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler


class LossScale:
    """Follows a GradScaler's rules by its public methods; without one, the scale is 1.

    GradScaler judges each rank by itself, which would let ranks part ways: here a step that any rank found not finite
    backs the scale off everywhere.
    """

    def __init__(self, scaler: GradScaler | None) -> None:
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._num_finite = 0

    def factor(self) -> float:
        """What a scaled gradient is multiplied by."""
        return 1.0 if self._scaler is None else 1.0 / self._scaler.get_scale()

    def update(self, finite: bool) -> None:
        """Grow after ``growth_interval`` finite steps, back off after one that was not."""
        scaler = self._scaler
        if scaler is None:
            return
        scale = scaler.get_scale()
        if not finite:
            scale *= scaler.get_backoff_factor()
            self._num_finite = 0
        else:
            self._num_finite += 1
            if self._num_finite < scaler.get_growth_interval():
                return
            scale *= scaler.get_growth_factor()
            self._num_finite = 0
        scaler.update(scale)

    def step_alone(self, optimizer: torch.optim.Optimizer) -> None:
        """A step of a single process: GradScaler's own."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)
            self._scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """The scaler's state and the count of finite steps."""
        scaler = {} if self._scaler is None else self._scaler.state_dict()
        return {"scaler": scaler, "num_finite": self._num_finite}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        if self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])
        self._num_finite = state["num_finite"]
