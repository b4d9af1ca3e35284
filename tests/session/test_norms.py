"""Norms of many tensors, dense and sparse, of any type."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from trimtab.engine.gradients.norms import norms_of

DENSE = torch.tensor([3.0, -4.0])
SPARSE = torch.sparse_coo_tensor([[1, 4]], [3.0, -4.0], (6,))


@pytest.mark.parametrize("other", [DENSE, DENSE.bfloat16(), SPARSE])
def test_each_tensor_has_its_norm(other: Tensor) -> None:
    norms = norms_of([DENSE, other, torch.zeros(0)])
    assert [norm.item() for norm in norms] == [5.0, 5.0, 0.0]
    assert {norm.dtype for norm in norms} == {torch.float32}
