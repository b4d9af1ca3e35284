"""Selecting in each segment of a buffer and joining what was selected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsify.base import Selected

#: (first element of the segment, gradient, residual, next residual, k) -> what was selected, relative to the buffer.
SelectSegment = Callable[[int, FlatGrad, Tensor, Tensor, int], CompactResult]


def select_segments(
    grad: FlatGrad,
    residual: Tensor,
    next_residual: Tensor,
    segments: Sequence[int],
    k: Sequence[int],
    select: SelectSegment,
) -> Selected:
    """Call ``select`` on the views of every segment that is not empty, in order, and join the results.

    One segment is selection behind fusion; one a tensor is selection ahead of it, layer-wise.
    """
    found = [
        select(first, grad[first:end], residual[first:end], next_residual[first:end], min(segment_k, end - first))
        for first, end, segment_k in zip(segments[:-1], segments[1:], k, strict=True)
        if end > first
    ]
    if len(found) == 1:
        indices, values = found[0].indices, found[0].values
    else:
        indices = torch.cat([one.indices for one in found])
        values = torch.cat([one.values for one in found])
    return Selected(
        indices,
        values,
        sum(one.squared_norm_before for one in found),
        sum(one.squared_norm_after for one in found),
    )


def selected(found: CompactResult) -> Selected:
    """What was found in one block, as a selection."""
    return Selected(found.indices, found.values, found.squared_norm_before, found.squared_norm_after)
