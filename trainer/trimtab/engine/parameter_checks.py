"""What the optimizers of a session train, and how fast."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from trimtab_api.errors import UserError

from trimtab.engine.gradients.flat_buffers import FlatBuffers


def check_parameters_are_known(
    optimizers: Sequence[torch.optim.Optimizer], model: nn.Module, flat_buffers: FlatBuffers
) -> None:
    """Raise `UserError` if an optimizer trains what the flat buffers do not hold, or no longer as they do."""
    trained = (p for each in optimizers for group in each.param_groups for p in group["params"])
    for parameter in (p for p in trained if p.requires_grad):
        if parameter not in flat_buffers:
            raise UserError(
                "did not require a gradient, or did not exist, when the session was attached, so ranks do not"
                " exchange it; let it require one before attach and freeze it afterwards, or session.close() and attach"
                " anew",
                field=f"model parameter {_name_of(parameter, model)}",
            )
        if parameter.dtype != torch.float32 or parameter.device != flat_buffers.device:
            raise UserError(
                f"was float32 on {flat_buffers.device} when the session was attached, where its gradient is exchanged;"
                " convert and move the model before attach",
                field=f"model parameter {_name_of(parameter, model)}",
                value=f"{parameter.dtype} on {parameter.device}",
            )


def check_backward_reached(model: nn.Module, flat_buffers: FlatBuffers) -> None:
    """Raise `UserError` if a parameter, whose step had no backward pass, is none of the flat buffers'."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter not in flat_buffers:
            raise UserError(
                "is not the one that the session was attached to, so nothing of it is exchanged, and an optimizer of"
                " before steps the other; load_state_dict without assign=True, or session.close(), make the optimizer"
                " anew, and attach",
                field=f"model parameter {name}",
            )


def _name_of(parameter: torch.Tensor, model: nn.Module) -> str:
    names = [name for name, each in model.named_parameters() if each is parameter]
    return names[0] if names else "(of the optimizer alone)"


def learning_rate_of(optimizer: torch.optim.Optimizer) -> float | None:
    """Return the first group's learning rate, with what its momentum adds up to; None if it has none."""
    group = optimizer.param_groups[0]
    momentum = float(group.get("momentum", 0.0))
    return float(group["lr"]) / (1 - momentum) if "lr" in group and momentum < 1 else None
