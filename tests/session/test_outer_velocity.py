"""The outer optimizer of one rank: what was frozen has no velocity when it learns again."""

from __future__ import annotations

import torch
from torch import nn
from trimtab.engine.exchange.outer_optimizer import OuterOptimizer
from trimtab.engine.gradients.flat_buffers import FlatBuffers


def test_a_frozen_tensor_begins_again_without_velocity() -> None:
    model = nn.Linear(2, 1)
    outer = OuterOptimizer(FlatBuffers(list(model.named_parameters())), rate=0.5, momentum=0.9)
    velocity = 0.0
    for learns in (True, True, False, True, True):
        model.weight.grad = torch.ones(1, 2)
        model.bias.grad = torch.ones(1) if learns else None
        outer.take()
        velocity = 0.9 * velocity + 1.0 if learns else 0.0
        expected = 0.5 * (1.0 + 0.9 * velocity)
        if model.bias.grad is not None:
            torch.testing.assert_close(model.bias.grad, torch.full((1,), expected))
