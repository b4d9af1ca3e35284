"""Lightning's Trainer.

trainer = Trainer(strategy="ddp", callbacks=[TrimtabCallback()])
trainer.fit(module, loader)
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from trimtab.integrations import exchange_folder
from trimtab.run_files.steps import OF_EVERY_EVALUATION
from trimtab.session.attach import attach
from trimtab.session.session import Session


class TrimtabCallback(Callback):
    """Attaches the module and its optimizers when training starts, and closes the session when it ends.

    The strategy must be "ddp". There are no trials, since the Trainer draws its own batches. The session is saved
    beside each checkpoint, in a folder with the checkpoint's name and ``.trimtab``. ``fit(ckpt_path=...)`` restores it.
    Numbers that the module logs in validation are recorded as evaluations.
    """

    def __init__(self, **options: Any) -> None:
        """Keep the options for `trimtab.attach`.

        Args:
            **options: Keyword arguments of `trimtab.attach`, such as ``job``, ``plan`` and ``run_directory``.
        """
        self._options, self._unwatch = options, contextlib.ExitStack()
        self.session: Session | None = None
        """The session while the Trainer trains, else None."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach: the strategy has wrapped the module, and the optimizers are there."""
        model = trainer.strategy.model
        assert model is not None, "the strategy has it before training starts"
        self.session = attach(model, trainer.optimizers, **self._options)
        self._watch_checkpoints(trainer)
        if trainer.ckpt_path is not None:
            exchange_folder.go_on(self.session, _beside(trainer.ckpt_path), trainer.ckpt_path)

    def _watch_checkpoints(self, trainer: Trainer) -> None:
        """Keep the exchange beside each checkpoint; a callback's own hooks are not told the checkpoint's path."""
        save, remove = trainer.save_checkpoint, trainer.strategy.remove_checkpoint

        def save_both(filepath: str | Path, *arguments: Any, **options: Any) -> None:
            if self.session is not None:
                self.session.save_exchange(_beside(filepath))
            save(filepath, *arguments, **options)

        def remove_both(filepath: str | Path) -> None:
            remove(filepath)
            shutil.rmtree(_beside(filepath), ignore_errors=True)

        vars(trainer)["save_checkpoint"], vars(trainer.strategy)["remove_checkpoint"] = save_both, remove_both
        self._unwatch.callback(vars(trainer).pop, "save_checkpoint")
        self._unwatch.callback(vars(trainer.strategy).pop, "remove_checkpoint")

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
            self._unwatch.close()


def _beside(checkpoint: str | Path) -> Path:
    return Path(f"{checkpoint}.{exchange_folder.NAME}")
