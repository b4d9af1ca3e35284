"""The interface of every sparsifier: which elements of one buffer to send.

A selector belongs to one rank. What it carries from step to step (thresholds) is keyed by flat range, proposed during
a step and kept only by `Selector.commit`, so a dropped step leaves no trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trimtab.kernels import FlatGrad


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
