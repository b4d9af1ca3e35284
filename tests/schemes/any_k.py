"""A sparsifier of one's own: any k elements, drawn anew in each step. Copy it to add one."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsify.base import Selected, Selector, Sent
from trimtab.sparsify.segments import select_segments, selected
from trimtab_api import catalogue


class AnyK(Selector):
    """Exactly k elements of each segment; the draw depends on the number of committed steps and on the segment."""

    def __init__(self, seed: int) -> None:
        self._seed, self._num_steps = seed, 0

    def compress(
        self,
        grad: FlatGrad,
        residual: Tensor,
        next_residual: Tensor,
        segments: Sequence[int],
        k: Sequence[int],
        start=0,
    ) -> Selected:
        def select(first: int, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int) -> CompactResult:
            squared_norm = kernels.accumulate(grad, residual, next_residual)
            return self._take(next_residual, k, start + first, first, squared_norm)

        return select_segments(grad, residual, next_residual, segments, k, select)

    def take(self, acc: Tensor, k: int, key: tuple[int, int]) -> Selected:
        return selected(self._take(acc, min(k, acc.numel()), key[0], 0, kernels.squared_norm(acc)))

    def _take(self, acc: Tensor, k: int, start: int, offset: int, squared_norm: float) -> CompactResult:
        random = torch.Generator().manual_seed(hash((self._seed, self._num_steps, start)) % 2**31)
        chosen = torch.randperm(acc.numel(), generator=random)[:k].to(torch.int32).sort().values
        values = kernels.take(acc, chosen)
        removed = kernels.clear(acc, chosen)
        return CompactResult(chosen + offset, values, k, squared_norm, max(0.0, squared_norm - removed))

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        self._num_steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"num_steps": self._num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._num_steps = state["num_steps"]


def register() -> None:
    seed = catalogue.Option("seed", catalogue.whole_number(0), "of the draw", default=0)
    catalogue.sparsifiers.add(catalogue.Row("any-k", "any k elements", "any_k:AnyK", options=(seed,)))
