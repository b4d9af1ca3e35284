"""Buffers of the same number of elements, tensors split where they must be."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.fusion.base import BufferCosts
from trimtab.plan.profile import Profile


def equal_parts(
    profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts, *, buffers: int
) -> tuple[int, ...]:
    """Cut the gradient into so many buffers, or one an element where it has fewer."""
    num_elements = sum(tensor_sizes)
    return tuple(sorted({num_elements * part // buffers for part in range(buffers)}))
