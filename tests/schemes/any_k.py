"""A sparsifier of one's own: any k elements, drawn anew in each step. Copy it to add one."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from trimtab.sparsifiers.base import FormedSelector, Sent
from trimtab_api import catalogue


class AnyK(FormedSelector):
    """Exactly k elements of each segment; the draw depends on the number of committed steps and on the segment."""

    def __init__(self, seed: int) -> None:
        self._seed, self._num_steps = seed, 0

    def _choose(self, acc: Tensor, k: int, start: int) -> Tensor:
        random = torch.Generator().manual_seed(hash((self._seed, self._num_steps, start)) % 2**31)
        return torch.randperm(acc.numel(), generator=random)[:k].to(torch.int32).sort().values

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        self._num_steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"num_steps": self._num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._num_steps = state["num_steps"]


def register() -> None:
    seed = catalogue.Option("seed", catalogue.whole_number(0), "of the draw", default=0)
    # It draws a permutation of all indices, and what comes up first is seldom among the largest.
    costs = {"passes": 6.0, "gain_odds": 0.05}
    catalogue.sparsifiers.add(catalogue.Sparsifier("any-k", "any k elements", "any_k:AnyK", options=(seed,), **costs))
