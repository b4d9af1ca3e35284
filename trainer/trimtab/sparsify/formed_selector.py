"""What sparsifiers share that look at acc once it is formed: one pass forms it, and then they take what they choose."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsify.base import Selected
from trimtab.sparsify.segments import SegmentSelector, selected, taken


class FormedSelector(SegmentSelector):
    """Chooses exactly k elements of each segment out of acc."""

    @abstractmethod
    def _choose(self, acc: Tensor, k: int, start: int) -> Tensor:
        """Which k elements of ``acc`` (float32 [n], k <= n) to send: int32 [k], unique and ascending.

        ``start`` is the segment's first element in the flat buffers.
        """

    def _select_segment(
        self, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int, offset: int, start: int
    ) -> CompactResult:
        squared_norm = kernels.accumulate(grad, residual, next_residual)
        return taken(next_residual, self._choose(next_residual, k, start), squared_norm, offset)

    def take(self, acc: Tensor, k: int, key: tuple[int, int]) -> Selected:
        """See `Selector.take`."""
        chosen = self._choose(acc, min(k, acc.numel()), key[0])
        return selected(taken(acc, chosen, kernels.squared_norm(acc), offset=0))
