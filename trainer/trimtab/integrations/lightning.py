"""Lightning's Trainer.

trainer = Trainer(strategy="ddp", callbacks=[TrimtabCallback()])
trainer.fit(module, loader)
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from trimtab.run_files.steps import OF_EVERY_EVALUATION
from trimtab.session.attach import attach
from trimtab.session.session import Session


class TrimtabCallback(Callback):
    """Attaches the module and its optimizers when training begins, and closes the session when it ends.

    ``options`` go to `trimtab.attach`: ``job``, ``plan``, ``run_directory``. The Trainer draws its batches by itself,
    so there are no trials.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.session: Session | None = None
        """While the Trainer trains."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach: the strategy has wrapped the module, and the optimizers are there."""
        model = trainer.strategy.model
        assert model is not None, "the strategy has it before training starts"
        self.session = attach(model, trainer.optimizers, **self._options)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the session after the last step."""
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Close the session: training has ended early."""
        self._close()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record what the module has logged by now, by its names."""
        logged = {name: value for name, value in trainer.callback_metrics.items() if name not in OF_EVERY_EVALUATION}
        numbers = {name: float(value) for name, value in logged.items() if value.numel() == 1}
        if self.session is not None and numbers and not trainer.sanity_checking:
            self.session.report(**numbers)

    def _close(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None
