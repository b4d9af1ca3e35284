"""What sparsifiers share that estimate a threshold: a small segment is selected exactly, which costs less."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsify.base import Selected, Selector
from trimtab.sparsify.near_k import EXACT_UP_TO
from trimtab.sparsify.segments import select_segments, selected
from trimtab.sparsify.topk import select_exactly, top_k_in_place

#: What state is kept by: a segment's first element in the arena, and its length.
Key = tuple[int, int]


class EstimatingSelector(Selector):
    """Selects by an estimate in segments of more than `EXACT_UP_TO` elements of which some are to stay."""

    @abstractmethod
    def _select(
        self, grad: FlatGrad, residual: Tensor | None, next_residual: Tensor, k: int, offset: int, key: Key
    ) -> CompactResult:
        """Select in one such segment; without a ``residual``, ``next_residual`` already holds acc."""

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

        def select(first: int, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int) -> CompactResult:
            n = grad.numel()
            if n <= EXACT_UP_TO or k >= n:
                return select_exactly(first, grad, residual, next_residual, k)
            return self._select(grad, residual, next_residual, k, first, (start + first, n))

        return select_segments(grad, residual, next_residual, segments, k, select)

    def take(self, acc: Tensor, k: int, key: Key) -> Selected:
        """See `Selector.take`."""
        if acc.numel() <= EXACT_UP_TO or k >= acc.numel():
            return selected(top_k_in_place(acc, k, kernels.squared_norm(acc), offset=0))
        return selected(self._select(acc, None, acc, k, 0, key))
