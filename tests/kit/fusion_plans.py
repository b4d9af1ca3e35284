"""Fusion plans by tensors, where a test thinks of layers and not of elements."""

from __future__ import annotations

from itertools import accumulate

from torch import nn
from trimtab.plan.plan import FusionPlan, Selection


def cut_before(model: nn.Module, *tensors: int, selection: Selection = "behind") -> FusionPlan:
    """Buffers that begin at these of the model's tensors, counted in backward order."""
    sizes = [parameter.numel() for parameter in reversed(list(model.parameters()))]
    offsets = [0, *accumulate(sizes)]
    return FusionPlan(tuple(offsets[tensor] for tensor in tensors), selection)
