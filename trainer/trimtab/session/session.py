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
    def plan(self) -> Plan:
        """The plan in force."""
        return self._engine.plan

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
        for _ in self._loops.own.trials():
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

    def close(self) -> None:
        """Undo a trial that was left, write out what is pending, leave the group and let go of the model."""
        self._training.close()

    def _metric_alone(self, loss: float | None, phases: dict[Phase, float]) -> dict[str, Any]:
        """Return the line of ``metrics.jsonl`` of a step in which nothing is exchanged."""
        return {"step": self._training.steps.num, "loss": loss, "step_seconds": sum(phases.values())}
