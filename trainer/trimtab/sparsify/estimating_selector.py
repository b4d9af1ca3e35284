"""What sparsifiers share that estimate a threshold: a small segment is selected exactly, which costs less."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsify.base import Selected
from trimtab.sparsify.near_k import EXACT_UP_TO
from trimtab.sparsify.segments import SegmentSelector, selected
from trimtab.sparsify.topk import select_exactly, top_k_in_place

#: What state is kept by: a segment's first element in the flat buffers, and its length.
Key = tuple[int, int]


class EstimatingSelector(SegmentSelector):
    """Selects by an estimate in segments of more than `EXACT_UP_TO` elements of which some are to stay."""

    @abstractmethod
    def _select(
        self, grad: FlatGrad, residual: Tensor | None, next_residual: Tensor, k: int, offset: int, key: Key
    ) -> CompactResult:
        """Select in one such segment; without a ``residual``, ``next_residual`` already holds acc."""

    def _select_segment(
        self, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int, offset: int, start: int
    ) -> CompactResult:
        n = grad.numel()
        if n <= EXACT_UP_TO or k >= n:
            return select_exactly(grad, residual, next_residual, k, offset)
        return self._select(grad, residual, next_residual, k, offset, (start, n))

    def take(self, acc: Tensor, k: int, key: Key) -> Selected:
        """See `Selector.take`."""
        if acc.numel() <= EXACT_UP_TO or k >= acc.numel():
            return selected(top_k_in_place(acc, k, kernels.squared_norm(acc), offset=0))
        return selected(self._select(acc, None, acc, k, 0, key))
