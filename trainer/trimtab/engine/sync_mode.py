"""What a step asks of the way in which ranks train: by gradients, by alternating optimizers, or by local steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor

from trimtab.engine.exchange.outcome import Outcome


class SyncMode(ABC):
    """One way of keeping ranks in step. `StepEngine.step` has the order of the calls."""

    @abstractmethod
    def before_optimizer(self, optimizer: torch.optim.Optimizer | None) -> Outcome:
        """Make every ``grad`` what the optimizer is to see, and commit or drop what was exchanged for it.

        Args:
            optimizer: The one that steps, where several alternate.
        """

    @abstractmethod
    def after_optimizer(self, outcome: Outcome) -> Outcome:
        """Return what became of the step, once the optimizer has stepped or its scaler has skipped the step."""

    @abstractmethod
    def synchronize(self) -> None:
        """Make every ``grad`` what the optimizer is to see, also where no backward pass has ended with it."""

    @abstractmethod
    def discard(self) -> None:
        """Throw away what was exchanged since the last step."""

    @abstractmethod
    def compared_weights(self) -> Iterable[Tensor]:
        """Return the weights that are the same on every rank."""
