"""Hugging Face's Trainer.

trainer = Trainer(model, arguments, train_dataset=data)
trainer.add_callback(TrimtabCallback(trainer))
trainer.train()
"""

from __future__ import annotations

from typing import Any

from transformers import Trainer, TrainerCallback

from trimtab.attachment import attach
from trimtab.script_numbers import is_one_number
from trimtab.session import Session


class TrimtabCallback(TrainerCallback):
    """Attaches the trainer's model and optimizer when training begins, and closes the session when it ends.

    ``options`` go to `trimtab.attach`: ``job``, ``plan``, ``run_directory``. The Trainer draws its batches by itself,
    so there are no trials.
    """

    def __init__(self, trainer: Trainer, **options: Any) -> None:
        self._trainer, self._options = trainer, options
        self.session: Session | None = None
        """While the Trainer trains."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The Trainer has wrapped the model, and made the optimizer."""
        trainer = self._trainer
        assert trainer.optimizer is not None, "the Trainer makes it before training begins"
        self.session = attach(trainer.model_wrapped, trainer.optimizer, **self._options)

    def on_evaluate(self, *_: Any, metrics: dict[str, Any] | None = None, **__: Any) -> None:
        """Record an evaluation, by the names that the Trainer has for it."""
        numbers = {name: value for name, value in (metrics or {}).items() if is_one_number(value)}
        if self.session is not None and numbers:
            self.session.report(**numbers)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """The Trainer has taken its last step."""
        if self.session is not None:
            self.session.close()
            self.session = None
