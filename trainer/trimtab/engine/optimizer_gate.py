"""The optimizer, which only the session may step: a step that a script takes by itself would part the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from trimtab_api.errors import UserError

from trimtab.engine.loss_scale import LossScale


class OptimizerGate:
    """Steps one optimizer, by its GradScaler where it has one, and refuses steps that others take."""

    def __init__(self, optimizer: torch.optim.Optimizer, scale: LossScale) -> None:
        self._optimizer, self._scale = optimizer, scale
        self._is_stepping = False
        self._handle = optimizer.register_step_pre_hook(self._before_step)

    def close(self) -> None:
        """Let go of the optimizer."""
        self._handle.remove()

    def step(self) -> None:
        """Step it, unless its scaler finds a gradient that is not finite."""
        self._is_stepping = True
        try:
            self._scale.step(self._optimizer)
        finally:
            self._is_stepping = False

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not self._is_stepping:
            raise UserError(
                "call session.step(loss) in place of optimizer.step(), and of scaler.step(optimizer)",
                field="optimizer",
            )


def warning_of_scheduler(optimizer: torch.optim.Optimizer, also: Sequence[Any]) -> str:
    """What to say of a learning rate scheduler that wraps ``optimizer`` and was not handed over; empty without one."""
    handed_over = any(isinstance(each, torch.optim.lr_scheduler.LRScheduler) for each in also)
    if handed_over or not hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return ""
    return (
        "a learning rate scheduler wraps the optimizer, and trials would move it on: hand it to attach(scheduler=...)"
        " or attach(also=[...])"
    )
