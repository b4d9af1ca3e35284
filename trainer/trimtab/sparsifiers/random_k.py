"""Random-k: any k elements (Stich et al., Sparsified SGD with Memory, 2018, definition 2.2)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimtab.sparsifiers.base import FormedSelector, Sent


class RandomK(FormedSelector):
    """Selects k elements of each segment at random: alike on every rank, anew in each step, whatever acc is.

    All ranks draw from the seed, the number of committed steps and the segment, so that all send the same indices.
    Values are sent as they are, not n / k times them: error feedback brings the rest later. It is a baseline, which
    shows what the other sparsifiers gain by looking at acc.
    """

    name = "random-k"

    def __init__(self, *, seed: int) -> None:
        self._seed, self._num_steps = seed, 0

    def _choose(self, acc: Tensor, k: int, start: int) -> Tensor:
        seed = zlib.crc32(f"{self._seed} {self._num_steps} {start} {acc.numel()}".encode())
        drawn = np.random.default_rng(seed).choice(acc.numel(), k, replace=False, shuffle=False)
        return torch.from_numpy(np.sort(drawn).astype(np.int32)).to(acc.device)

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """See `Selector.commit`."""
        self._num_steps += 1

    def state_dict(self) -> dict[str, Any]:
        """Return ``num_steps``, the committed steps."""
        return {"num_steps": self._num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Selector.load_state_dict`."""
        self._num_steps = int(state["num_steps"])
