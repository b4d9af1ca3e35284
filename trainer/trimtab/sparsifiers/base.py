"""The interface of every sparsifier: which elements of one buffer to send.

A selector belongs to one rank. What it carries from step to step (thresholds) is keyed by flat range, proposed during
a step and kept only by `Selector.commit`, so a dropped step leaves no trace.
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
    """What became of one buffer's selection."""

    start: int
    stop: int
    """The buffer's elements in the flat buffers."""
    indices: Tensor | None
    """int32 [m], relative to the buffer: where the residual was cleared, wholly or in part; None for everywhere.

    Where all ranks send what one selected, that is not what this rank selected.
    """


class Selector(ABC):
    """A sparsifier with the state it carries."""

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
        """Select in each segment, and write ``next_residual`` = acc with the selection zeroed.

        All of [n] float32; exactly ``k[i]`` elements of segment i unless the class documents otherwise, and always at
        least one in all. ``start`` is the buffer's offset in the flat buffers, the key of carried state. ``grad`` and
        ``residual`` are only read.
        """

    @abstractmethod
    def take(self, acc: Tensor, k: int, key: tuple[int, int]) -> Selected:
        """Take k elements out of ``acc`` (float32 [n], a block that is formed already), which becomes what is left.

        As many as `compress` does of one segment. ``key`` is what state is kept by: the block's first element in the
        flat buffers, and its length. Schemes that select again on the way (SparDL, gTopk, Ok-Topk) call it, once a key
        in a step.
        """

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """Keep the state that this step's calls proposed; ``sent`` is what became of what was selected."""

    def discard(self) -> None:
        """Forget what this step's calls proposed: the step was dropped."""

    def state_dict(self) -> dict[str, Any]:
        """The committed state, as plain data and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


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
