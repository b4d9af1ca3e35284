"""The state of every random number generator that a training step may draw from."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class RandomState:
    """Python's, NumPy's, torch's CPU and the current GPU's generators."""

    python: Any
    numpy: Any
    torch_cpu: Tensor
    torch_cuda: Tensor | None

    @classmethod
    def capture(cls) -> RandomState:
        """Capture the generators as they are now."""
        return cls(
            random.getstate(),
            np.random.get_state(),
            torch.get_rng_state(),
            torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
        )

    def to_state(self) -> dict[str, Any]:
        """Return the generators as plain data, tensors and an array."""
        return {"python": self.python, "numpy": self.numpy, "torch": self.torch_cpu, "cuda": self.torch_cuda}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> RandomState:
        """Return the generators of which `to_state` returned ``state``."""
        return cls(state["python"], state["numpy"], state["torch"], state["cuda"])

    def equals(self, other: RandomState) -> bool:
        """Return whether every generator would draw the same from here."""
        cuda, other_cuda = self.torch_cuda, other.torch_cuda
        return (
            self.python == other.python
            and all(np.array_equal(a, b) for a, b in zip(self.numpy, other.numpy, strict=True))
            and torch.equal(self.torch_cpu, other.torch_cpu)
            and (cuda is other_cuda if cuda is None or other_cuda is None else torch.equal(cuda, other_cuda))
        )

    def restore(self) -> None:
        """Put the generators back."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch_cpu)
        if self.torch_cuda is not None:
            torch.cuda.set_rng_state(self.torch_cuda)
