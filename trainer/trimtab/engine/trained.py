"""What the optimizers of a session train, and how fast."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from trimtab_api.errors import UserError

from trimtab.engine.arena import Arena


def check_parameters_are_known(optimizers: Sequence[torch.optim.Optimizer], model: nn.Module, arena: Arena) -> None:
    """Raise `UserError` where an optimizer trains a parameter that the arena does not hold: ranks would part in it."""
    for parameter in (p for each in optimizers for group in each.param_groups for p in group["params"]):
        if parameter.requires_grad and parameter not in arena:
            names = [name for name, each in model.named_parameters() if each is parameter]
            raise UserError(
                "did not require a gradient, or did not exist, when the session was attached, so ranks do not"
                " exchange it; let it require one before attach and freeze it afterwards, or attach anew",
                field=f"model parameter {names[0] if names else '(of the optimizer alone)'}",
            )


def learning_rate_of(optimizer: torch.optim.Optimizer) -> float | None:
    """Of the first parameter group, with what its momentum adds up to; None where it tells none."""
    group = optimizer.param_groups[0]
    momentum = float(group.get("momentum", 0.0))
    return float(group["lr"]) / (1 - momentum) if "lr" in group and momentum < 1 else None
