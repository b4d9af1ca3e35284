"""Random-k: any k elements (Stich et al., Sparsified SGD with Memory, 2018, definition 2.2)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsify.base import Selected, Selector, Sent
from trimtab.sparsify.segments import select_segments, selected


class RandomK(Selector):
    """Exactly k elements of each segment, drawn alike on every rank and anew in each step, without regard to acc.

    All ranks draw from the seed, the number of committed steps and the segment, so that all send the same indices. What
    is sent is acc as it is, not n / k times it: error feedback brings the rest later. A baseline: what the others gain
    by looking at acc shows beside it.
    """

    name = "random-k"

    def __init__(self, *, seed: int) -> None:
        self._seed, self._num_steps = seed, 0

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
            return self._take(next_residual, k, squared_norm, start + first, first)

        return select_segments(grad, residual, next_residual, segments, k, select)

    def take(self, acc: Tensor, k: int, key: tuple[int, int]) -> Selected:
        """See `Selector.take`."""
        return selected(self._take(acc, min(k, acc.numel()), kernels.squared_norm(acc), key[0], offset=0))

    def _take(self, acc: Tensor, k: int, squared_norm: float, start: int, offset: int) -> CompactResult:
        seed = zlib.crc32(f"{self._seed} {self._num_steps} {start} {acc.numel()}".encode())
        drawn = np.random.default_rng(seed).choice(acc.numel(), k, replace=False, shuffle=False)
        chosen = torch.from_numpy(np.sort(drawn).astype(np.int32)).to(acc.device)
        values = kernels.take(acc, chosen)
        removed = kernels.clear(acc, chosen)
        return CompactResult(chosen + offset, values, k, squared_norm, max(0.0, squared_norm - removed))

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """See `Selector.commit`."""
        self._num_steps += 1

    def state_dict(self) -> dict[str, Any]:
        """``num_steps``: committed steps."""
        return {"num_steps": self._num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Selector.load_state_dict`."""
        self._num_steps = int(state["num_steps"])
