"""Stands for a script that has no optimizer, and changes the weights by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Parameter


class ManualOptimizer(torch.optim.Optimizer):
    """Steps nothing: between ``backward()`` and `Session.step` the script has done so, by the means over ranks."""

    shown_as = "steps that the script takes by itself"
    """In reasons, where an optimizer's class would stand."""

    def __init__(self, parameters: Iterable[Parameter], known: torch.optim.Optimizer | None = None) -> None:
        super().__init__(parameters, {})
        self.known = known
        """The script's own optimizer, where it is known: what compression costs depends on it."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Leave the weights as they are."""
