"""Selecting in each segment of a buffer by itself, and joining what was selected."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsify.base import Selected, Selector


class SegmentSelector(Selector):
    """Selects in every segment that is not empty, in order.

    One segment is selection behind fusion; one a tensor is selection ahead of it, layer-wise.
    """

    @abstractmethod
    def _select_segment(
        self, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int, offset: int, start: int
    ) -> CompactResult:
        """`Selector.compress` of one segment (all of [n] float32, k <= n).

        Its first element is the buffer's ``offset``, to which indices are relative, and the flat buffers' ``start``.
        """

    def compress(
        self,
        grad: FlatGrad,
        residual: Tensor,
        next_residual: Tensor,
        segments: Sequence[int],
        k: Sequence[int],
        start: int = 0,
    ) -> Selected:
        """See `Selector.compress`."""
        found = [
            self._select_segment(
                *(grad[first:end], residual[first:end], next_residual[first:end]),
                min(segment_k, end - first),
                first,
                start + first,
            )
            for first, end, segment_k in zip(segments[:-1], segments[1:], k, strict=True)
            if end > first
        ]
        if len(found) == 1:
            return selected(found[0])
        return Selected(
            torch.cat([one.indices for one in found]),
            torch.cat([one.values for one in found]),
            sum(one.squared_norm_before for one in found),
            sum(one.squared_norm_after for one in found),
        )


def selected(found: CompactResult) -> Selected:
    """What was found in one block, as a selection."""
    return Selected(found.indices, found.values, found.squared_norm_before, found.squared_norm_after)


def taken(acc: Tensor, chosen: Tensor, squared_norm: float, offset: int) -> CompactResult:
    """Take the ``chosen`` elements (int32 [k]) out of ``acc``, whose squared norm is given; it becomes what is left."""
    values = kernels.take(acc, chosen)
    removed = kernels.clear(acc, chosen)
    return CompactResult(chosen + offset, values, chosen.numel(), squared_norm, max(0.0, squared_norm - removed))
