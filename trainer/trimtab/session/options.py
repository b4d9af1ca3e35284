"""What a script hands to `trimtab.attach` beside its model and its optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from trimtab.checkpoint.snapshot import Stateful
from trimtab.engine.optimizer.loss_scale import LossScale

SchedulerInterval = Literal["epoch", "step"]


@dataclass(frozen=True)
class SessionOptions:
    """How a session trains; the defaults are those of `trimtab.attach`."""

    scheduler: Any = None
    """A learning rate scheduler, whose state is restored after a trial."""
    scheduler_interval: SchedulerInterval = "epoch"
    """"step": the session steps the scheduler after each step; "epoch": the script steps it."""
    scale: LossScale = field(default_factory=lambda: LossScale(None))
    """The loss scale of a GradScaler, or none."""
    extra_state: Sequence[Stateful | torch.optim.Optimizer] = ()
    """Whatever else a step changes and a trial must put back."""
    alternating_optimizers: bool = False
    """True if each step is of one of the optimizers."""
    on_resize: Callable[[int, int], None] | None = None
    """Is called with the former and the present number of ranks, where a checkpoint of another number was restored."""
    seed: int = 0
    """Of the shuffles of loaders."""
