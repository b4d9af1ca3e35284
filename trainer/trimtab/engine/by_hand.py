"""Stands for a script that has no optimizer, and changes the weights by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Parameter


class ByHand(torch.optim.Optimizer):
    """Steps nothing: between ``backward()`` and `Session.step` the script has done so, by the means over ranks."""

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Leave the weights as they are."""
