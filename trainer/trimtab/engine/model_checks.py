"""Checks of what is trained: the same model on all ranks, by parameters that ranks exchange."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence

import torch
from torch import nn
from trimtab_api.errors import UserError

from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, gather_json, json_of


def check_parameters_are_known(
    optimizers: Sequence[torch.optim.Optimizer], model: nn.Module, flat_buffers: FlatBuffers
) -> None:
    """Raise `UserError` if an optimizer trains what the flat buffers do not hold, or no longer as they do."""
    trained = (p for each in optimizers for group in each.param_groups for p in group["params"])
    for parameter in (p for p in trained if p.requires_grad):
        if parameter not in flat_buffers:
            raise UserError(
                "did not exist or required no gradient at attach, so ranks do not exchange it; set"
                " requires_grad before attach and freeze it afterwards, or call session.close() and attach"
                " again",
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
                "was replaced after attach, so ranks do not exchange it, and the optimizer steps the old one;"
                " use load_state_dict without assign=True, or call session.close(), create a new optimizer,"
                " and attach again",
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


_TEXT: Read[str] = json_of(str)
_TEXTS: Read[list[str]] = json_of(list[str])


def check_models_are_alike(group: Group, model: nn.Module) -> None:
    """Raise `UserError` on every rank if a rank's tensors have other names, shapes, types or memory formats.

    It also does so for a parameter that requires a gradient on some ranks alone. Every rank calls it together.
    """
    own = _lines(model)
    digest = hashlib.sha256(json.dumps(own).encode()).hexdigest()
    if len(set(gather_json(group, digest, _TEXT))) == 1:
        return
    first, *others = gather_json(group, own, _TEXTS)
    for rank, lines in enumerate(others, 1):
        for one, other in itertools.zip_longest(first, lines, fillvalue="nothing"):
            if one != other:
                raise UserError(
                    f"differs between ranks: rank {rank} has {other} where rank 0 has {one}; build the same model"
                    " on every rank, whatever its data",
                    field="model",
                )


def _lines(model: nn.Module) -> list[str]:
    parameters = [
        f"{name} {list(each.shape)} {each.dtype}{'' if each.requires_grad else ', frozen'}{_order(each)}"
        for name, each in model.named_parameters()
    ]
    return parameters + [f"buffer {name} {list(each.shape)} {each.dtype}" for name, each in model.named_buffers()]


def _order(parameter: nn.Parameter) -> str:
    """Return the strides, for people, if the elements lie in another order than that of the indices; else nothing."""
    return "" if parameter.is_contiguous() else f", strides {list(parameter.stride())}"
