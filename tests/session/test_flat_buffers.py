"""What flat buffers refuse, and what they tell of their tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from trimtab.engine.gradients import flat_buffers as flat_buffers
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.plan.plan import FusionPlan
from trimtab_api.errors import UserError


def arena_of(*shapes: tuple[int, ...]) -> FlatBuffers:
    return FlatBuffers([(f"p{index}", nn.Parameter(torch.zeros(shape))) for index, shape in enumerate(shapes)])


def test_a_buffer_whose_indices_would_not_fit_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_buffers, "MOST_ELEMENTS", 100)
    whole = arena_of((10, 9), (60,))
    with pytest.raises(UserError, match=r"fusion: 'single': makes a buffer of 150 elements.* write more buffers"):
        whole.buffers(FusionPlan(planner="single"))
    assert len(whole.buffers(FusionPlan((0, 99)))) == 2


def test_a_cut_beyond_the_last_element_is_refused() -> None:
    with pytest.raises(UserError, match=r"fusion\.cuts: '20': the model has 20 elements"):
        arena_of((20,)).buffers(FusionPlan((0, 20)))


def test_tensors_that_are_not_finite_or_zero_are_told_in_backward_order() -> None:
    held = arena_of((2, 2), (3,), (1,))  # last first: p2, p1, p0
    held.grad.copy_(torch.tensor([0.0, 1.0, float("nan"), 0.0, 0.0, 0.0, 0.0, -0.0]))
    assert held.not_finite(held.grad) == [1]
    assert held.all_zero([0, 1, 2]) == [0, 2]
    assert held.all_zero([]) == []
