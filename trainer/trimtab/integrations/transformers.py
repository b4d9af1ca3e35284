"""Hugging Face's Trainer.

trainer = Trainer(model, arguments, train_dataset=data)
trainer.add_callback(TrimtabCallback(trainer))
trainer.train()
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trimtab.integrations import exchange_folder
from trimtab.run_files.steps import OF_EVERY_EVALUATION
from trimtab.session.attach import attach
from trimtab.session.script_numbers import is_one_number
from trimtab.session.session import Session


class TrimtabCallback(TrainerCallback):
    """Attaches the trainer's model and optimizer when training begins, and closes the session when it ends.

    ``options`` go to `trimtab.attach`: ``job``, ``plan``, ``run_directory``. The Trainer draws its batches by itself,
    so there are no trials. Each checkpoint holds what the exchange carries, in a folder ``trimtab``;
    ``resume_from_checkpoint`` goes on from it.
    """

    def __init__(self, trainer: Trainer, **options: Any) -> None:
        self._trainer, self._options = trainer, options
        self.session: Session | None = None
        """While the Trainer trains."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        """Attach: the Trainer has wrapped the model, and made the optimizer; it has loaded both if it resumes."""
        trainer = self._trainer
        assert trainer.optimizer is not None, "the Trainer makes it before training begins"
        self.session = attach(trainer.model_wrapped, trainer.optimizer, **self._options)
        if state.global_step:
            checkpoint = _checkpoint(args, state)
            exchange_folder.go_on(self.session, checkpoint / exchange_folder.NAME, checkpoint)

    def on_save(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        """Save beside the checkpoint that the Trainer has written, on every rank after the same step."""
        if self.session is not None:
            self.session.save_exchange(_checkpoint(args, state) / exchange_folder.NAME)

    def on_evaluate(self, *_: Any, metrics: dict[str, Any] | None = None, **__: Any) -> None:
        """Record an evaluation, by the names that the Trainer has for it."""
        told = {name: value for name, value in (metrics or {}).items() if name not in OF_EVERY_EVALUATION}
        numbers = {name: value for name, value in told.items() if is_one_number(value)}
        if self.session is not None and numbers:
            self.session.report(**numbers)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Close the session after the last step."""
        if self.session is not None:
            self.session.close()
            self.session = None


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    """Return where the Trainer keeps the checkpoint of the present step."""
    assert args.output_dir is not None, "the Trainer gives it a default"
    return Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
