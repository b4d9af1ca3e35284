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
    """A part of `trimtab.Session`."""

    _training: Training

    @property
    def in_trial(self) -> bool:
        """True if the present steps belong to a trial: they will be undone, so a user's logging should be quiet."""
        return self._training.trials.is_active

    @property
    def steps(self) -> int:
        """Training steps taken, trials not counted. During a trial it equals no number (`StepInTrial`)."""
        num = self._training.steps.num
        return StepInTrial(num) if self.in_trial else num

    def epochs(self, num_epochs: int) -> Iterator[int]:
        """Return the numbers, from 0, of the epochs to train: all ``num_epochs``, or what a loaded state leaves."""
        return self._training.resume.epochs(num_epochs)

    def steps_until(self, num_steps: int) -> Iterator[int]:
        """Return the numbers, from 0, of the steps to take until ``num_steps`` are taken, for a loop without `batches`.

        A restored run goes on with the next number. Trials happen on the way, as in a loop over `batches`: they are
        undone, and so is what the loop body draws from random generators or hands over by ``extra_state``. A step that
        was thrown away has its number again.

        Args:
            num_steps: Steps to take in all, those of earlier runs included.

        Raises:
            UserError: Another loop of the session's is under way, or this is no whole number.
        """
        num = whole_number(num_steps, "session.steps_until")
        with contextlib.closing(self._training.loops.own.steps_until(num, lambda: self._training.steps.num)) as turns:
            for _ in turns:
                yield self.steps

    def state_dict(self) -> dict[str, Any]:
        """Return how far training has come (steps, epochs, batches), in plain numbers; the same on every rank."""
        return self._training.resume.state_dict(self._training.steps.num)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where `state_dict` was taken. Every rank calls it; what counts is rank 0's ``state``.

        Weights, optimizer and scheduler are the script's to load.

        Raises:
            UserError: A step has been taken or a loop has begun, or this is no such state.
        """
        steps = self._training.steps
        steps.go_to(self._training.resume.load_state_dict(state, steps.num))
        self._training.engine.resume_at(steps.num)

    @property
    def stateful(self) -> RankState:
        """All that this rank's session carries, for ``torch.distributed.checkpoint``: it saves and loads the value.

        Every rank saves and loads it together, between two steps and outside of trials.
        """
        if self.in_trial:
            raise UserError(
                "comes in a trial, whose steps are undone; save where not session.in_trial", field="stateful"
            )
        return RankState(self._training.state)

    def checkpoint(self, *, wait: bool = True) -> None:
        """Write a checkpoint of the job now; every rank calls it together, between two steps.

        Nothing is written in a trial, whose steps are undone.

        Args:
            wait: Whether to return once it is whole, or could not be written; else as soon as its tensors are copied.

        Raises:
            UserError: The job has no ``spec.checkpoint``, or a backward pass has run whose step has not been taken.
        """
        self._training.checkpoint(wait=wait)

    def save_exchange(self, folder: str | Path) -> None:
        """Keep on disk what every rank's exchange carries after this step: a file a rank.

        The files of the newest whole step before it stay as well, and older ones are removed. Every rank calls it
        together, between two steps, with a folder that may be each host's own or one that all share. Nothing is
        written in a trial, whose steps are undone, nor by a single process.

        Raises:
            UserError: One of the ranks cannot write; raised on every rank.
        """
        if not self.in_trial:
            self._training.exchange_checkpoint.save(folder, self._training.steps.num)

    def load_exchange(self, folder: str | Path) -> None:
        """Go on from the newest step whose files are whole: bit for bit, where there are as many ranks as there were.

        It is a step of the session's, where `load_state_dict` was called, and of the model's weights. Of another
        number of ranks, or where other ranks share hosts, what the old ones held back is shared out among the new, and
        nothing of it is lost; what schemes had learned is learned anew. Every rank calls it, after `trimtab.attach`
        and before the first step, with the model and optimizer of that step.

        Raises:
            UserError: There is no whole step, a file is damaged, or the state is of another model or of another
                step's weights; raised on every rank.
        """
        steps = self._training.steps
        steps.go_to(self._training.exchange_checkpoint.load(folder, steps.num))
