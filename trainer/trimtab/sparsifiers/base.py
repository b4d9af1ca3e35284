"""The interface of all sparsifiers, and the selectors that they share.

A selector belongs to one rank. The state that it carries from step to step (thresholds) is keyed by flat range,
proposed during a step and kept only by `Selector.commit`, so that a dropped step leaves no trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad


@dataclass(frozen=True)
class Selected:
    """A selection out of ``acc = residual + gradient``."""

    indices: Tensor
    """int32 [m], unique, ascending, relative to the buffer."""
    values: Tensor
    """float32 [m]: acc at the indices."""
    squared_norm_before: float
    """Sum of squares of acc."""
    squared_norm_after: float
    """Sum of squares of acc with the selection zeroed."""


@dataclass(frozen=True)
class Sent:
    """Outcome of one buffer's selection."""

    start: int
    """First element of the buffer in the flat buffers."""
    stop: int
    """End of the buffer in the flat buffers."""
    indices: Tensor | None
    """int32 [m], relative to the buffer: where the residual was cleared, wholly or in part; None for everywhere.

    It is not what this rank selected if all ranks send what one of them selected.
    """


class Selector(ABC):
    """A sparsifier with its carried state."""

    name: str

    @abstractmethod
    def compress(
        self,
        grad: FlatGrad,
        residual: Tensor,
        next_residual: Tensor,
        segments: Sequence[int],
        k: Sequence[int],
        start: int = 0,
    ) -> Selected:
        """Select in each segment, and write ``next_residual``: acc with the selection zeroed.

        Exactly ``k[i]`` elements of segment i are selected unless the class says otherwise, and at least one in all.

        Args:
            grad: float32 [n]; only read.
            residual: float32 [n]; only read.
            next_residual: float32 [n]; receives the new residual.
            segments: Offsets of the segments, from 0 to n.
            k: Elements to select in each segment.
            start: Offset of the buffer in the flat buffers, the key of carried state.
        """

    @abstractmethod
    def take(self, acc: Tensor, k: int, key: tuple[int, int]) -> Selected:
        """Take about k elements out of a block that is formed already.

        It selects as many as `compress` does of one segment. Schemes that select again on the way (SparDL, gTopk,
        Ok-Topk) call it, once a key in a step.

        Args:
            acc: float32 [n]; becomes the new residual.
            k: Elements to select.
            key: Key of carried state: the block's first element in the flat buffers, and its length.
        """

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """Keep the state that this step's calls proposed; ``sent`` is the outcome of their selections."""

    def discard(self) -> None:
        """Forget what this step's calls proposed, because the step was dropped."""

    def state_dict(self) -> dict[str, Any]:
        """Return the committed state, as plain data and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""


class SegmentSelector(Selector):
    """Selects in every segment that is not empty, in order.

    One segment is selection per bucket; one segment a tensor is selection per tensor (layer-wise).
    """

    @abstractmethod
    def _select_segment(
        self, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int, offset: int, start: int
    ) -> CompactResult:
        """Select in one segment; see `Selector.compress`.

        Args:
            grad: float32 [n].
            residual: float32 [n].
            next_residual: float32 [n].
            k: Elements to select, at most n.
            offset: The segment's first element in the buffer, to which indices are relative.
            start: The segment's first element in the flat buffers.
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
        return joined(found)


def joined(found: Sequence[CompactResult | Selected]) -> Selected:
    """Return the selections of consecutive segments as one; their indices are relative to the buffer."""
    if len(found) == 1:
        return selected(found[0])
    return Selected(
        torch.cat([each.indices for each in found]),
        torch.cat([each.values for each in found]),
        sum(each.squared_norm_before for each in found),
        sum(each.squared_norm_after for each in found),
    )


def selected(found: CompactResult | Selected) -> Selected:
    """Turn the result of one block into a selection."""
    return Selected(found.indices, found.values, found.squared_norm_before, found.squared_norm_after)


def taken(acc: Tensor, chosen: Tensor, squared_norm: float, offset: int) -> CompactResult:
    """Take the ``chosen`` elements (int32 [k]) out of ``acc``, which becomes the new residual.

    Args:
        acc: float32 [n].
        chosen: Unique and ascending.
        squared_norm: Sum of squares of ``acc``.
        offset: Added to the returned indices.
    """
    values = kernels.take(acc, chosen)
    removed = kernels.clear(acc, chosen)
    return CompactResult(chosen + offset, values, chosen.numel(), squared_norm, max(0.0, squared_norm - removed))


class FormedSelector(SegmentSelector):
    """Chooses exactly k elements of each segment out of acc, which one pass forms before."""

    @abstractmethod
    def _choose(self, acc: Tensor, k: int, start: int) -> Tensor:
        """Choose k elements of ``acc`` (float32 [n], k <= n) to send.

        Args:
            acc: The segment's gradient plus residual.
            k: Elements to choose.
            start: The segment's first element in the flat buffers.

        Returns:
            int32 [k], unique and ascending.
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
