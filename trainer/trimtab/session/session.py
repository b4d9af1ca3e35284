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
from trimtab.session.progress_calls import ProgressCalls
from trimtab.session.rank_ops import RankOps
from trimtab.session.script_numbers import checked_loss, one_number
from trimtab.session.training import Training
from trimtab.transport.group import Group


class Session(ProgressCalls):
    """The training loop's connection to its job; `trimtab.attach` creates it.

    Each process has one session. A script that trains in a single process calls the same methods: they exchange
    nothing then. Unless its text says otherwise, every rank calls a method together.
    """

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
        """Callbacks that `close` runs last."""
        return self._training.when_closed

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._training.is_closed

    @property
    def rank(self) -> int:
        """Number of this process, from 0 to `num_ranks` - 1."""
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
        """Wait until every rank has called this method.

        Raises:
            CommunicationError: A rank has ended, or did not come within ``spec.communication.timeout``.
        """
        self._ranks.barrier()

    def all_reduce(self, value: float | Tensor, op: Literal["mean", "sum", "max", "min"] = "mean") -> float | Tensor:
        """Reduce a metric over all ranks; every rank gets the same bits.

        Args:
            value: A number, or a tensor or NumPy array of the same shape on every rank. It is reduced in float64.
            op: "mean", "sum", "max" or "min". The mean of a tensor or array of integers is rounded down.

        Returns:
            A float for a number; otherwise a tensor or array of the same shape, type and device.

        Raises:
            UserError: ``op`` is not known, ``value`` holds no real numbers, or shapes differ between ranks.
        """
        self._loops.reduced_over_ranks()
        return self._ranks.all_reduce(value, op)

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._engine.plan

    def batches(self, loader: Iterable[Any], *, sharded: bool = False) -> Batches:
        """Return this rank's share of a loader; each ``for`` over it is one epoch.

        Trials of plans run in this loop: they train on its batches, are undone, and the batches come again. The result
        has a length, which is this rank's number of batches, and the attributes of ``loader``.

        Args:
            loader: A `DataLoader` or another iterable of batches. Its batch size is that of each rank.
            sharded: True if ``loader`` already yields this rank's share, with as many batches as on every rank.

        Returns:
            An iterable with as many batches on every rank.

        Raises:
            UserError: ``loader`` is an exhausted iterator, gives another rank's share, or its sampler has no length.
                Some of these are raised when the loop begins.
        """
        return self._loops.batches(loader, sharded=sharded)

    def trials(self, step: Callable[[], Any]) -> None:
        """Run the trials that are due, for a loop that draws its own batches; call it before each step.

        A trial calls ``step`` several times under a candidate plan and then undoes the steps, as in a loop over
        `batches`. A loop over `steps_until` does not need this call.

        Args:
            step: Takes one whole training step: draw a batch, ``backward()``, step.

        Raises:
            UserError: A loop over `batches` or `steps_until` is under way.
        """
        for _ in self._loops.own.trials():
            step()

    def step(self, loss: Tensor | float | None = None) -> None:
        """Take one training step after ``backward()``; it replaces ``optimizer.step()``.

        The method steps the optimizer and the scaler, and sets every ``grad`` to None. If a gradient is not finite on
        any of several ranks, no rank takes the step.

        Args:
            loss: One number (Python, NumPy or torch) to record, or None.

        Raises:
            UserError: ``loss`` is a closure or not one number, the session is closed or has alternating optimizers,
                or more than half of the last 50 steps had gradients that were not finite.
        """
        loss = checked_loss(loss)
        if self.is_closed:
            raise UserError("the session is closed", field="session.step")
        self._training.stepping.step(loss)

    def skip(self) -> None:
        """Discard the gradients of the last ``backward()``, instead of calling `step`.

        The step does not count, and residuals stay as they were before. Under a local-SGD plan each rank may call
        this method by itself, and the step counts as one of the round.
        """
        self._training.stepping.skip()

    def synchronize(self) -> None:
        """Make every ``grad`` the mean over ranks, without loss scale, before the step.

        After ``backward()`` gradients are the mean already. The call is needed in four cases: the gradients have a loss
        scale; the schedule delays some of them; the script wrote ``grad`` itself; or this rank ran no backward pass.

        Raises:
            UserError: The session has alternating optimizers.
        """
        self._training.synchronize()

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which backward passes only accumulate gradients.

        The first backward pass outside exchanges the sum.

        Returns:
            The context manager.
        """
        return self._engine.no_sync()

    def report(self, **metrics: SupportsFloat) -> None:
        """Record an evaluation; only rank 0's call counts, and calls in a trial do not.

        ``spec.target.metric`` names the metric that decides whether a run has reached its target.

        Args:
            **metrics: Numbers by name, such as ``accuracy=0.93``. A tensor or array of one element is a number.

        Raises:
            UserError: A value is not one number, or a name is ``step``, ``time`` or ``event``.
        """
        for name in sorted(OF_EVERY_EVALUATION & metrics.keys()):
            raise UserError("every record has it by itself; leave it out", field="session.report", value=name)
        values = {name: one_number(value, name) for name, value in metrics.items()}
        self._training.report(values)

    def on_first_step(self, call: Callable[[], None]) -> None:
        """Run a callback once, after this process's first step.

        Args:
            call: The callback.
        """
        self._training.on_first_step(call)

    def debug_state(self) -> DebugState:
        """Return a copy of what this rank's exchange holds between two steps.

        Any rank may call it by itself, also after `close`. It takes as much memory as the model, or more.

        Returns:
            Residuals, and gradients that a schedule has delayed, by parameter name; and the state of the schemes.
        """
        return self._engine.debug_state()

    def end_round(self) -> None:
        """End a round of local steps: afterwards all ranks have the same weights.

        Loops over `batches` and `steps_until` call it when they end. In another loop, every rank calls it after its
        last step. It does nothing if there was no local step since the last exchange.
        """
        self._training.on_epoch_end()

    @contextlib.contextmanager
    def anchor(self) -> Iterator[None]:
        """Give the model, inside the context, the weights with which the present round of local steps began.

        These weights are the same on every rank, so use them to evaluate or save within a round. Any rank may enter
        the context by itself. Outside local SGD it changes nothing. Float buffers stay those of the rank.

        Yields:
            None.

        Raises:
            UserError: A backward pass has run, and its step has not.
        """
        if self._engine.has_begun:
            raise UserError("comes between two steps; enter it after the step", field="session.anchor")
        with self._engine.at_anchor():
            yield

    def close(self) -> None:
        """End the session: undo an open trial, write what is pending, leave the job, remove all hooks from the model.

        A script that trains to its end need not call it. Rank 0 records the end of the run either way.
        """
        self._training.close()

    def _metric_alone(self, loss: float | None, phases: dict[Phase, float]) -> dict[str, Any]:
        """Return the line of ``metrics.jsonl`` of a step in which nothing is exchanged."""
        return {"step": self._training.steps.num, "loss": loss, "step_seconds": sum(phases.values())}
