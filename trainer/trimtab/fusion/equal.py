"""Buffers of the same number of elements, tensors split where they must be."""

from __future__ import annotations

from collections.abc import Sequence


def equal_parts(tensor_sizes: Sequence[int], *, buffers: int) -> tuple[int, ...]:
    """Cut the gradient into so many buffers, or one an element where it has fewer."""
    num_elements = sum(tensor_sizes)
    return tuple(sorted({num_elements * part // buffers for part in range(buffers)}))
