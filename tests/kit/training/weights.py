"""A model's weights as one vector, to compare ranks and runs by."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def weights_of(model: nn.Module) -> Tensor:
    """A copy of all parameters, one after the other."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
