"""Check that all ranks have built the same model: rank 0's weights are sent to all, tensor by tensor."""

from __future__ import annotations

import hashlib
import itertools
import json

from torch import nn
from trimtab_api.errors import UserError

from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, gather_json, json_of

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
                    f"rank {rank} has built another than rank 0 ({other} where rank 0 has {one}); build the same on"
                    " every rank, whatever data each of them has",
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
