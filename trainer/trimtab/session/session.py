"""The training loop's one object: attach, batches, step.

    session = trimtab.attach(model, optimizer)          # configuration comes from the launcher
    for inputs, targets in session.batches(loader):
        loss = criterion(model(inputs), targets)
        loss.backward()                                 # exchange: afterwards every grad is the mean over ranks
        session.step(loss)                              # commit, optimizer.step(), controller

With one process this is plain training.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, SupportsFloat

import torch
from torch import Tensor, nn
from trimtab_api.errors import UserError

from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.control.client import ControlClient
from trimtab.data.batches import Batches
from trimtab.engine.debug_state import DebugState
from trimtab.engine.optimizer.stepper import as_list
from trimtab.engine.phase_timer import Phase
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.run_files.steps import OF_EVERY_EVALUATION
from trimtab.session.options import SessionOptions
from trimtab.session.rank_ops import RankOps
from trimtab.session.script_numbers import checked_loss, one_number
from trimtab.session.step_counter import StepInTrial
from trimtab.session.training import Training
from trimtab.transport.group import Group


class Session:
    """Made by `trimtab.attach`; every rank has one."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        *,
        group: Group | None,
        plan: Plan,
        recorder: Recorder,
        options: SessionOptions | None = None,
        control_client: ControlClient | None = None,
        ranks: RankOps | None = None,
        checkpoints: CheckpointSettings | None = None,
    ) -> None:
        """Join the ranks, and go on from the newest of ``checkpoints``; ``ranks`` None: those of ``group``."""
        self._ranks = ranks or RankOps(group)
        self._training = Training(
            model,
            as_list(optimizer),
            options or SessionOptions(),
            group=group,
            plan=plan,
            recorder=recorder,
            ranks=self._ranks,
            control_client=control_client,
            checkpoints=checkpoints,
            metric_alone=self._metric_alone,
        )
        self._loops, self._engine = self._training.loops, self._training.engine

    @property
    def when_closed(self) -> contextlib.ExitStack:
        """Callbacks for when the session has been closed."""
        return self._training.when_closed

    @property
    def is_closed(self) -> bool:
        """True if `close` was called."""
        return self._training.is_closed

    @property
    def rank(self) -> int:
        """Number of this process, 0 .. `num_ranks` - 1."""
        return self._ranks.rank

    @property
    def num_ranks(self) -> int:
        """Number of processes that train together."""
        return self._ranks.num_ranks

    @property
    def is_main(self) -> bool:
        """True on rank 0, which prints, saves and reports."""
        return self._ranks.is_main

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        self._ranks.barrier()

    def all_reduce(self, value: float | Tensor, op: Literal["mean", "sum", "max", "min"] = "mean") -> float | Tensor:
        """Reduce a metric over all ranks, as `RankOps.all_reduce` does."""
        self._loops.reduced_over_ranks()
        return self._ranks.all_reduce(value, op)

    @property
    def in_trial(self) -> bool:
        """True if the present steps belong to a trial: they will be undone, so a user's logging should be quiet."""
        return self._training.trials.is_active

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._engine.plan

    @property
    def steps(self) -> int:
        """Training steps taken, trials not counted. During a trial it equals no number (`StepInTrial`)."""
        num = self._training.steps.num
        return StepInTrial(num) if self.in_trial else num

    def batches(self, loader: Iterable[Any], *, sharded: bool = False) -> Batches:
        """Return this rank's share of ``loader``, and its length; it runs trials on the way by replaying batches.

        As with a loader, each ``for`` over it is a new epoch.

        Args:
            loader: What yields batches.
            sharded: Whether ``loader`` holds this rank's share alone, as many batches as on every rank; it is taken as
                it is.
        """
        return self._loops.batches(loader, sharded=sharded)

    def trials(self, step: Callable[[], Any]) -> None:
        """Run the trials that are due, for a loop that draws its batches by itself; call it before each step.

        Each candidate is tried by calling ``step`` some times, which is undone as in a loop over `batches`.

        Args:
            step: Takes one whole training step, from drawing a batch to the optimizer's step.

        Raises:
            UserError: A loop over `batches` is under way.
        """
        for _ in self._loops.trials():
            step()

    def step(self, loss: Tensor | float | None = None) -> None:
        """Commit or drop the step, step the optimizer, and let the controller speak.

        Afterwards gradients are released, as by ``zero_grad(set_to_none=True)``.

        Args:
            loss: One number of Python's, NumPy's or torch's, which is recorded beside the step's times; or None.

        Raises:
            UserError: ``loss`` is a closure or no number, or the session is closed.
        """
        loss = checked_loss(loss)
        if self.is_closed:
            raise UserError("the session is closed", field="session.step")
        self._training.stepping.step(loss)

    def skip(self) -> None:
        """Throw away what `backward()` has left and exchanged, in place of `step`; what was held back before stays.

        Every rank calls it together, and no step is counted; under local steps each for itself, and one is.
        """
        self._training.stepping.skip()

    def synchronize(self) -> None:
        """Make every ``grad`` what the optimizer will see: the mean over ranks, without the loss scale.

        ``backward()`` already leaves them so, except under a loss scale or on ranks that ran no backward pass.
        """
        self._training.synchronize()

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Have backward passes inside only accumulate; the exchange comes with the first one outside."""
        return self._engine.no_sync()

    def report(self, **metrics: SupportsFloat) -> None:
        """Record an evaluation, from rank 0; quiet in a trial.

        Args:
            metrics: Numbers by name, as ``accuracy=``, ``loss=``; a tensor or an array of one element is a number.

        Raises:
            UserError: A value is no number, or a name is `step`, `time` or `event`, which every record has by itself.
        """
        for name in sorted(OF_EVERY_EVALUATION & metrics.keys()):
            raise UserError("every record has it by itself; leave it out", field="session.report", value=name)
        values = {name: one_number(value, name) for name, value in metrics.items()}
        self._training.report(values)

    def on_first_step(self, call: Callable[[], None]) -> None:
        """Call ``call`` once, when this process has taken a step."""
        self._training.on_first_step(call)

    def debug_state(self) -> DebugState:
        """Return a copy of what this rank's exchange holds between two steps: residuals, and what waits or has arrived.

        For tests, and for people who ask where a gradient is; it costs a copy of the model or more. Any rank may call
        it by itself, also after `close`. It changes nothing and waits for nothing.
        """
        return self._engine.debug_state()

    def end_round(self) -> None:
        """Bring together what ranks have trained by themselves; afterwards all have the same weights.

        Every rank calls it after the same step. Loops over `batches` do, where they end or are left. Nothing happens
        where no local step has been taken since the last exchange, or the session is closed.
        """
        self._training.on_epoch_end()

    @contextlib.contextmanager
    def anchor(self) -> Iterator[None]:
        """Give the model, inside, the weights with which the present round began: the same on every rank.

        Any rank may enter it by itself, between two steps, to evaluate or save what all agree on. Afterwards the rank
        has its own weights again. Where gradients are exchanged in every step it changes nothing. Float buffers stay
        the rank's own.

        Raises:
            UserError: A backward pass has run whose step has not been taken.
        """
        if self._engine.has_begun:
            raise UserError("comes between two steps; enter it after the step", field="session.anchor")
        with self._engine.at_anchor():
            yield

    def epochs(self, num_epochs: int) -> Iterator[int]:
        """Return the numbers, from 0, of the epochs to train: all ``num_epochs``, or what a loaded state leaves."""
        return self._training.resume.epochs(num_epochs)

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
        self._engine.resume_at(steps.num)

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

    def close(self) -> None:
        """Undo a trial that was left, write out what is pending, leave the group and let go of the model."""
        self._training.close()

    def _metric_alone(self, loss: float | None, phases: dict[Phase, float]) -> dict[str, Any]:
        """Return the line of ``metrics.jsonl`` of a step in which nothing is exchanged."""
        return {"step": self._training.steps.num, "loss": loss, "step_seconds": sum(phases.values())}
