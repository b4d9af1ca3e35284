"""What a script calls of its session to learn how far training has come, to keep that, and to go on from there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trimtab_api.errors import UserError

from trimtab.session.checkpoints.rank_state import RankState
from trimtab.session.script_numbers import whole_number
from trimtab.session.step_counter import StepInTrial
from trimtab.session.training import Training


class ProgressCalls:
    """Calls of `trimtab.Session` that count steps and save and restore progress."""

    _training: Training

    @property
    def in_trial(self) -> bool:
        """True during a trial, whose steps will be undone: print and log nothing then."""
        return self._training.trials.is_active

    @property
    def steps(self) -> int:
        """Number of training steps taken, those of earlier runs included and those of trials not.

        During a trial the value equals no number, so ``session.steps % 100 == 0`` holds once and not in each step of
        the trial.
        """
        num = self._training.steps.num
        return StepInTrial(num) if self.in_trial else num

    def epochs(self, num_epochs: int) -> Iterator[int]:
        """Return the numbers of the epochs that are left to train, counted from 0.

        Args:
            num_epochs: Epochs in all, those of earlier runs included.

        Returns:
            All ``num_epochs`` numbers, or those that a restored checkpoint or a loaded state leaves.

        Raises:
            UserError: ``num_epochs`` is not a whole number.
        """
        return self._training.resume.epochs(num_epochs)

    def steps_until(self, num_steps: int) -> Iterator[int]:
        """Yield the numbers of the steps that are left, counted from 0, for a loop without `batches`.

        Trials happen in this loop, and are undone. A step that the script discards has its number again. A round of
        local steps ends with the loop.

        Args:
            num_steps: Steps in all, those of earlier runs included.

        Yields:
            The number of the next step.

        Raises:
            UserError: Another loop of the session is under way, or ``num_steps`` is not a whole number.
        """
        num = whole_number(num_steps, "session.steps_until")
        with contextlib.closing(self._training.loops.own.steps_until(num, lambda: self._training.steps.num)) as turns:
            for _ in turns:
                yield self.steps

    def state_dict(self) -> dict[str, Any]:
        """Return how far training has come, for the script's own checkpoint.

        Model, optimizer, scheduler and random generators are not in it. Any rank may call it by itself.

        Returns:
            Counts of steps, epochs and batches as plain data, the same on every rank.
        """
        return self._training.resume.state_dict(self._training.steps.num)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from where `state_dict` was taken; every rank calls it, before the first batch.

        The script loads model, optimizer and scheduler itself.

        Args:
            state: What `state_dict` returned. Rank 0's counts.

        Raises:
            UserError: A step has been taken, a loop has begun, or ``state`` is not a session's.
        """
        steps = self._training.steps
        steps.go_to(self._training.resume.load_state_dict(state, steps.num))
        self._training.engine.resume_at(steps.num)

    @property
    def stateful(self) -> RankState:
        """All that this rank's session carries, as a ``Stateful`` of ``torch.distributed.checkpoint``.

        It holds position, residuals, schemes, controller, buffers and random generators. Model, optimizers, scheduler
        and ``extra_state`` are not in it. Save it on every rank, between two steps. Load it on every rank, last, before
        the first step and with the same number of ranks.

        Raises:
            UserError: A trial is under way.
        """
        if self.in_trial:
            raise UserError(
                "comes in a trial, whose steps are undone; save where not session.in_trial", field="stateful"
            )
        return RankState(self._training.state)

    def checkpoint(self, *, wait: bool = True) -> None:
        """Write a checkpoint of the job now; every rank calls it, between two steps.

        In a trial nothing is written.

        Args:
            wait: True: return when the checkpoint is complete or has failed. False: return when the tensors are
                copied.

        Raises:
            UserError: The job has no ``spec.checkpoint``, or a backward pass has run and its step has not.
        """
        self._training.checkpoint(wait=wait)

    def save_exchange(self, folder: str | Path) -> None:
        """Save what every rank's exchange carries, one file a rank; every rank calls it, between two steps.

        The files of the last two saved steps are kept. In a trial, and in a single process, nothing is written.

        Args:
            folder: A folder of each host, or one that all hosts share.

        Raises:
            UserError: A rank cannot write, or a backward pass has run and its step has not. Raised on every rank.
        """
        if not self.in_trial:
            self._training.exchange_checkpoint.save(folder, self._training.steps.num)

    def load_exchange(self, folder: str | Path) -> None:
        """Restore what `save_exchange` saved; every rank calls it after `attach`, before the first step.

        The newest step whose files are complete, and that fits the model's weights and the session's step, is used.
        Load the model, the optimizer and `load_state_dict` before. With another number of ranks, residuals are
        divided among the new ranks, and the state of the schemes is lost.

        Args:
            folder: The folder that was given to `save_exchange`.

        Raises:
            UserError: No step is complete, a file is damaged, or no step fits the model. Raised on every rank.
        """
        steps = self._training.steps
        steps.go_to(self._training.exchange_checkpoint.load(folder, steps.num))
