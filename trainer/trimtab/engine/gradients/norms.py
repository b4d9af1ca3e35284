"""Norms of many tensors, in few launches on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor


def norms_of(tensors: list[Tensor]) -> tuple[Tensor, ...] | list[Tensor]:
    """Return the Euclidean norm of each tensor, as a float32 scalar on the tensor's device."""
    if all(each.layout == torch.strided and each.dtype == torch.float32 for each in tensors):
        return torch._foreach_norm(tensors)
    # Of what is sparse torch adds values in no other type than theirs.
    types = [torch.float32 if each.layout == torch.strided else None for each in tensors]
    return [torch.linalg.vector_norm(each, dtype=kind).float() for each, kind in zip(tensors, types, strict=True)]
