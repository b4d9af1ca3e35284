"""The optimizer, whose step is the session's step, whoever takes it: the session, the script, or a GradScaler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from trimtab_api.errors import UserError

from trimtab.engine.loss_scale import LossScale


class OptimizerGate:
    """Steps one optimizer, by its GradScaler where it has one, and tells of the steps that others take."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        scale: LossScale,
        before_own: Callable[[], None],
        after_own: Callable[[], None],
        left_out: Callable[[], None],
    ) -> None:
        """``before_own`` and ``after_own`` are called around each step that the script takes by itself.

        ``left_out`` is, before the script has its GradScaler update the scale: that may have left the step out.
        """
        self._optimizer, self._scale = optimizer, scale
        self._before_own, self._after_own, self._left_out = before_own, after_own, left_out
        self._is_stepping = False
        scale.watch(self._before_update)
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

    def close(self) -> None:
        """Let go of the optimizer and its scaler."""
        self._scale.release()
        for handle in self._handles:
            handle.remove()

    def step(self) -> None:
        """Step it, unless its scaler finds a gradient that is not finite."""
        self._is_stepping = True
        try:
            self._scale.step(self._optimizer)
        finally:
            self._is_stepping = False

    def _before_step(self, _: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_stepping:
            return
        if any(callable(each) for each in (*args, *kwargs.values())):
            raise UserError(
                "evaluates a closure, whose backward pass would be exchanged in the midst of the step; call"
                " loss.backward() first, and step() without it",
                field="optimizer.step",
            )
        if not self._scale.is_scaling and _is_called_by_a_scaler():
            raise UserError(
                "is stepped by a GradScaler that the session does not know, and residuals must be free of its scale;"
                " hand it over: attach(..., scaler=scaler)",
                field="optimizer",
            )
        self._before_own()

    def _before_update(self) -> None:
        if not self._is_stepping:
            self._left_out()

    def _after_step(self, *_: Any) -> None:
        if not self._is_stepping:
            self._after_own()


def _is_called_by_a_scaler() -> bool:
    """Whether the optimizer's step under way was called by a GradScaler that scales: nothing else tells."""
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, GradScaler):
            return caller.is_enabled()
        frame = frame.f_back
    return False


def warning_of_scheduler(optimizer: torch.optim.Optimizer, also: Sequence[Any]) -> str:
    """What to say of a learning rate scheduler that wraps ``optimizer`` and was not handed over; empty without one."""
    handed_over = any(isinstance(each, torch.optim.lr_scheduler.LRScheduler) for each in also)
    if handed_over or not hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return ""
    return (
        "a learning rate scheduler wraps the optimizer, and trials would move it on: hand it to attach(scheduler=...)"
        " or attach(also=[...])"
    )
