"""Which optimizers may step some parameters now and the others later, and train the same.

Where means arrive late (`trimtab.engine.deferred.forward_hooks`), one step of the optimizer becomes several calls of
its ``step()``, each with the gradients of a part. That changes no bit where each parameter is stepped by its own
gradient and state. It is another training where a step looks at all gradients (a global norm), counts its calls, or
calls hooks of the script's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from trimtab.engine.gradients.uncompiled_hook import has_scripted_part

_NAMES = (
    *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon"),
    *("NAdam", "RAdam", "RMSprop", "Rprop", "SGD"),
)
_BY_PARAMETER = tuple(getattr(torch.optim, name) for name in _NAMES if hasattr(torch.optim, name))
"""torch's own that keep all their state by parameter; Muon is not in every torch that we run beside."""


class PartialSteps:
    """Tells whether a step of one model's optimizers may be taken in parts."""

    def __init__(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], say: Callable[[str], None]
    ) -> None:
        """``say`` takes the reason, for people, where a step cannot be taken in parts."""
        self._model, self._optimizers, self._say = model, optimizers, say

    def are_possible(self) -> bool:
        """Return whether means may arrive after the optimizer's step; hooks may be registered at any time."""
        reason = partial_step_unsupported_reason(self._optimizers)
        if has_scripted_part(self._model):
            reason = "scripted modules take no hooks"
        if reason:
            self._say(
                f"{reason}, so each step waits for all gradients, though some may arrive by the next forward pass"
            )
        return not reason


def partial_step_unsupported_reason(optimizers: Sequence[torch.optim.Optimizer]) -> str:
    """Return why a step of these has to wait for all gradients, for people; empty if some parameters may follow later.

    Exactly torch's classes: what a class that derives from one of them does in its step, nobody knows.
    """
    if len(optimizers) > 1:
        return "several optimizers step together"
    (optimizer,) = optimizers
    name = type(optimizer).__name__
    if type(optimizer) not in _BY_PARAMETER:
        return f"{name} is none of torch's own optimizers that step each parameter by itself"
    if _has_another_step(optimizer):
        return f"the step() of {name} was replaced"
    if any(map(_is_of_the_script, _hooks_of(optimizer))):
        return f"hooks are registered on the steps of {name}"
    return ""


def _has_another_step(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the instance has a ``step`` of its own, other than the one that torch's schedulers put there."""
    own = vars(optimizer).get("step")
    if own is None or hasattr(own, "_wrapped_by_lr_sched"):
        return False
    return getattr(own, "__func__", None) is not type(optimizer).step


def _hooks_of(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [
        *optimizer._optimizer_step_pre_hooks.values(),
        *optimizer._optimizer_step_post_hooks.values(),
        *_global_optimizer_pre_hooks.values(),
        *_global_optimizer_post_hooks.values(),
    ]


def _is_of_the_script(hook: Any) -> bool:
    """Return whether a hook is neither the session's nor one by which torch's profilers look at steps."""
    return not str(getattr(hook, "__module__", "")).startswith(
        ("trimtab.", "torch.profiler", "torch.distributed._tools")
    )
