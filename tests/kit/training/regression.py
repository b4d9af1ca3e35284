"""A small regression that ranks train on batches of their own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SIZE = 3


def model_of(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def optimizer_of(model: nn.Module, name: str) -> torch.optim.Optimizer:
    if name == "SGD":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def batch_of(number: int, rank: int) -> Tensor:
    return torch.randn(16, 4, generator=torch.Generator().manual_seed(100 * number + rank))


def backward(model: nn.Module, number: int, rank: int) -> None:
    loss_of(model, number, rank).backward()


def loss_of(model: nn.Module, number: int, rank: int) -> Tensor:
    x = batch_of(number, rank)
    return nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
