"""A small training whose gradients sparsifiers select from."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn


class Training:
    """A small network on scikit-learn's digits, stepped by what is selected of its gradient, with error feedback."""

    def __init__(self, batch_size: int) -> None:
        torch.manual_seed(0)
        pixels, digits = load_digits(return_X_y=True)
        self.images, self.digits = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(digits)
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        self.parameters = list(self.model.parameters())[::-1]
        self.optimizer = torch.optim.SGD(self.parameters, lr=0.02, momentum=0.9)
        self.batch_size = batch_size
        sizes = [parameter.numel() for parameter in self.parameters]
        self.offsets = [0, *torch.tensor(sizes).cumsum(0).tolist()]
        self.residual = torch.zeros(sum(sizes))

    def gradient(self) -> torch.Tensor:
        batch = torch.randint(0, len(self.images), (self.batch_size,))
        self.optimizer.zero_grad()
        self.loss = nn.functional.cross_entropy(self.model(self.images[batch]), self.digits[batch])
        self.loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in self.parameters])

    def step(self, update: torch.Tensor, next_residual: torch.Tensor) -> None:
        for parameter, part in zip(self.parameters, update.split([p.numel() for p in self.parameters]), strict=True):
            parameter.grad.copy_(part.view_as(parameter))
        self.optimizer.step()
        self.residual = next_residual
