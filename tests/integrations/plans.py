"""What the scripts of this folder train, and under which plans: None is the framework by itself."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

PLANS = (None, "dense", "0.05/all-gather")


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))


def data() -> TensorDataset:
    inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())
