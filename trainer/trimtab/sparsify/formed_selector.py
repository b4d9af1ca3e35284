"""What sparsifiers share that look at acc once it is formed: one pass forms it, and then they take what they choose."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsify.base import Selected, Selector
from trimtab.sparsify.segments import select_segments, selected


class FormedSelector(Selector):
    """Chooses exactly k elements of each segment out of acc."""

    @abstractmethod
    def _choose(self, acc: Tensor, k: int, start: int) -> Tensor:
        """Which k elements of ``acc`` (float32 [n], k <= n) to send: int32 [k], unique and ascending.

        ``start`` is the segment's first element in the arena.
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

        def select(first: int, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int) -> CompactResult:
            squared_norm = kernels.accumulate(grad, residual, next_residual)
            return taken(next_residual, self._choose(next_residual, k, start + first), squared_norm, first)

        return select_segments(grad, residual, next_residual, segments, k, select)

    def take(self, acc: Tensor, k: int, key: tuple[int, int]) -> Selected:
        """See `Selector.take`."""
        chosen = self._choose(acc, min(k, acc.numel()), key[0])
        return selected(taken(acc, chosen, kernels.squared_norm(acc), offset=0))


def taken(acc: Tensor, chosen: Tensor, squared_norm: float, offset: int) -> CompactResult:
    """Take the ``chosen`` elements (int32 [k]) out of ``acc``, whose squared norm is given; it becomes what is left."""
    values = kernels.take(acc, chosen)
    removed = kernels.clear(acc, chosen)
    return CompactResult(chosen + offset, values, chosen.numel(), squared_norm, max(0.0, squared_norm - removed))
