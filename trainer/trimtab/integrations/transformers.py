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
    """Attaches the Trainer's model and optimizer when training starts, and closes the session when it ends.

    There are no trials, since the Trainer draws its own batches. Each checkpoint has a folder ``trimtab`` with what the
    exchange carries. ``resume_from_checkpoint`` restores it. Metrics of an evaluation are recorded.
    """

    def __init__(self, trainer: Trainer, **options: Any) -> None:
        """Keep the Trainer and the options for `trimtab.attach`.

        Args:
            trainer: The Trainer to which the callback is added.
            **options: Keyword arguments of `trimtab.attach`, such as ``job``, ``plan`` and ``run_directory``.
        """
        self._trainer, self._options = trainer, options
        self.session: Session | None = None
        """The session while the Trainer trains, else None."""

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
