"""The training loop's one object: attach, batches, step.

    session = trimtab.attach(model, optimizer)          # configuration comes from the launcher
    for inputs, targets in session.batches(loader):
        loss = criterion(model(inputs), targets)
        loss.backward()                                 # exchange: afterwards every grad is the mean over ranks
        session.step(loss)                              # commit, optimizer.step(), controller

With one process this is plain training.
"""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, SupportsFloat

import torch
from torch import Tensor, nn
from trimtab_api.errors import UserError

from trimtab.checkpoint.snapshot import Snapshot, Stateful, TrainingState
from trimtab.control.client import ControlClient
from trimtab.data.batches import Batches
from trimtab.data.loops import Loops
from trimtab.data.sharded_loader import Loaders
from trimtab.engine.debug_state import DebugState, debug_state
from trimtab.engine.exchange.consensus import PlanMismatchError
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.engine.optimizer.stepper import as_list, warning_of_scheduler
from trimtab.engine.phase_timer import Phase
from trimtab.engine.same_model import check_models_are_alike
from trimtab.engine.step_engine import StepEngine
from trimtab.engine.step_lifecycle import StepLifecycle
from trimtab.kernels.warm_up import warm_up
from trimtab.plan.plan import Plan
from trimtab.process.exit_handlers import only_in_this_process
from trimtab.run_files.recorder import Recorder
from trimtab.run_files.steps import OF_EVERY_EVALUATION
from trimtab.session.announcements import ControlMessages, MessagesForAll
from trimtab.session.exchange_checkpoint import ExchangeCheckpoint
from trimtab.session.rank_ops import RankOps
from trimtab.session.resume import ResumeState
from trimtab.session.script_numbers import check_one_number, one_number
from trimtab.session.step_counter import StepCounter, StepInTrial
from trimtab.session.step_follow_up import StepFollowUp
from trimtab.session.step_metrics import number
from trimtab.session.trials import TrialRunner
from trimtab.transport.base import CommunicationError
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import barrier

#: Warning of a metric that no rank has added up over all.
_OF_SHARE = (
    "session.report() is of rank 0's share, 1 / {num_ranks} of the data, since the loop before it was over"
    " session.batches: add up over ranks by session.all_reduce, or loop over the loader itself on rank 0"
)
#: Warning at the end, of a loop after which nothing was reported either.
_OF_LAST_SHARE = (
    "the last loop over session.batches was of rank 0's share, 1 / {num_ranks} of the data, and session.all_reduce has"
    " added nothing up since: unless the script adds up by itself, loop over the loader itself on rank 0"
)

SchedulerInterval = Literal["epoch", "step"]


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
        scheduler: Any = None,
        scheduler_interval: SchedulerInterval = "epoch",
        scale: LossScale | None = None,
        extra_state: Sequence[Stateful | torch.optim.Optimizer] = (),
        alternating_optimizers: bool = False,
        control_client: ControlClient | None = None,
        ranks: RankOps | None = None,
        seed: int = 0,
    ) -> None:
        """``ranks``: what the script may ask of all ranks; None: those of ``group``."""
        self.when_closed = contextlib.ExitStack()
        """Callbacks for when the session has been closed."""
        self._on_first_step: Callable[[], None] = lambda: None
        self._model, self._optimizers = model, as_list(optimizer)
        self._scheduler, self._scheduler_interval = scheduler, scheduler_interval
        self._scale, self._extra_state = scale or LossScale(None), tuple(extra_state)
        self._group, self._ranks, self._recorder = group, ranks or RankOps(group), recorder
        self._control = ControlMessages(group, control_client)
        self._static_plan = plan
        self._engine: StepEngine | None = None
        self._checkpoint: ExchangeCheckpoint | None = None
        self._follow_up: StepFollowUp
        """Follow-up of each step, where several ranks train."""
        self._trials: TrialRunner | None = None
        self._stepping = StepLifecycle(
            self._optimizers,
            self._scale,
            lambda: self._engine,
            self._stepped,
            alternating_optimizers=alternating_optimizers,
        )
        self._phases = self._stepping.stepper.phases
        if group is not None:
            recorder.starting("sending the weights of rank 0 to all ranks")
            self._join(group, plan)
        self.is_closed = False
        """True if `close` was called."""
        self._steps = StepCounter()
        loaders = Loaders(self.rank, self.num_ranks, seed)
        told = (
            self._ranks.say,
            self._ranks.warn,
            self._trials_ended,
            self._stepping.on_next_batch,
            self.end_round,
            self._loop_left,
        )
        self._loops = Loops(loaders, self._control, *told, alternating_optimizers=alternating_optimizers)
        self._resume = ResumeState(group, self._loops, self._ranks.warn)
        if group is not None:
            session = weakref.ref(self)
            group.tell_of_end(lambda: "" if (open_one := session()) is None else open_one._progress())
            tell = only_in_this_process(lambda: None if (open_one := session()) is None else open_one._tell_of_share())
            atexit.register(tell)  # most scripts close no session
            self.when_closed.callback(atexit.unregister, tell)
            recorder.starting("loading kernels, which are compiled the first time that a machine trains")
            assert self._engine is not None
            assert self._trials is not None
            self._follow_up = StepFollowUp(
                self._engine,
                self._trials,
                ranks=self._ranks,
                control=self._control,
                loops=self._loops,
                recorder=recorder,
                phases=self._phases,
                steps=self._steps,
                scheduler_warning=self._scheduler_warning,
            )
            warm_up(self._engine.flat_buffers.grad.device)
            recorder.starting("waiting for the other ranks to have their kernels ready")
            self._follow_up.follow_first()
            barrier(group)
        recorder.begin()
        self._phases.lap()

    def _join(self, group: Group, plan: Plan) -> None:
        """Take part in the ranks' steps."""
        check_models_are_alike(group, self._model)
        others = (each for each in self._extra_state if isinstance(each, torch.optim.Optimizer))
        self._engine = StepEngine(
            self._model,
            (*self._optimizers, *others),
            group,
            plan,
            scale=self._scale,
            stepper=self._stepping.stepper,
            messages=MessagesForAll(self._control, self._has_message),
            before_backward=lambda: self._trials.before_backward() if self._trials else None,
            say=self._ranks.say,
        )
        self._checkpoint = ExchangeCheckpoint(self._engine, self._control, self._ranks.say)
        self._trials = TrialRunner(self._model, self._engine, self._snapshot, self._control.trials)

    def _has_message(self) -> bool:
        """Return whether a message follows the step; the communication thread asks."""
        return not self.in_trial and (self._control.is_pending or self._loops.has_news or self._follow_up.has_left_out)

    # All ranks ----------------------------------------------------------------------------------------------------

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

    # What a training script reads ---------------------------------------------------------------------------------

    @property
    def in_trial(self) -> bool:
        """True if the present steps belong to a trial: they will be undone, so a user's logging should be quiet."""
        return self._trials is not None and self._trials.is_active

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._engine.plan if self._engine else self._static_plan

    @property
    def steps(self) -> int:
        """Training steps taken, trials not counted. During a trial it equals no number (`StepInTrial`)."""
        return StepInTrial(self._steps.num) if self.in_trial else self._steps.num

    # The loop -----------------------------------------------------------------------------------------------------

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
        if callable(loss):
            raise UserError("takes the loss, not a closure; call loss.backward() before it", field="session.step")
        if self.is_closed:
            raise UserError("the session is closed", field="session.step")
        if loss is not None and not isinstance(loss, Tensor):
            loss = one_number(loss, "loss")
        elif loss is not None:  # it is read once the step is over, as a GPU is waited for then
            check_one_number(loss, "loss")
        self._stepping.step(loss)

    def skip(self) -> None:
        """Throw away what `backward()` has left and exchanged, in place of `step`; what was held back before stays.

        Every rank calls it together, and no step is counted; under local steps each for itself, and one is.
        """
        self._stepping.skip()

    def synchronize(self) -> None:
        """Make every ``grad`` what the optimizer will see: the mean over ranks, without the loss scale.

        ``backward()`` already leaves them so, except under a loss scale or on ranks that ran no backward pass.
        """
        if self._engine is not None:
            self._engine.synchronize()
        self._scale.unscale(self._optimizers)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Have backward passes inside only accumulate; the exchange comes with the first one outside."""
        return contextlib.nullcontext() if self._engine is None else self._engine.exchanger.passes.no_sync()

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
        if self._loops.has_evaluated_share:
            self._loops.reduced_over_ranks()
            self._ranks.warn(_OF_SHARE.format(num_ranks=self.num_ranks))
        if self.is_main and (not self.in_trial or (self._trials is not None and self._trials.is_suspended)):
            self._recorder.metric({"event": "evaluation", "step": self._steps.num, **values})

    def on_first_step(self, call: Callable[[], None]) -> None:
        """Call ``call`` once, when this process has taken a step."""
        self._on_first_step = call

    def debug_state(self) -> DebugState:
        """Return a copy of what this rank's exchange holds between two steps: residuals, and what waits or has arrived.

        For tests, and for people who ask where a gradient is; it costs a copy of the model or more. Any rank may call
        it by itself, also after `close`. It changes nothing and waits for nothing.
        """
        return DebugState() if self._engine is None else debug_state(self._engine)

    # Rounds of local steps ----------------------------------------------------------------------------------------

    def end_round(self) -> None:
        """Bring together what ranks have trained by themselves; afterwards all have the same weights.

        Every rank calls it after the same step. Loops over `batches` do, where they end or are left. Nothing happens
        where no local step has been taken since the last exchange, or the session is closed.
        """
        if self._engine is not None and not self.is_closed and not self.in_trial:
            self._follow_up.end_round()

    @contextlib.contextmanager
    def anchor(self) -> Iterator[None]:
        """Give the model, inside, the weights with which the present round began: the same on every rank.

        Any rank may enter it by itself, between two steps, to evaluate or save what all agree on. Afterwards the rank
        has its own weights again. Where gradients are exchanged in every step it changes nothing. Float buffers stay
        the rank's own.

        Raises:
            UserError: A backward pass has run whose step has not been taken.
        """
        if self._engine is None:
            yield
            return
        if self._engine.pending_step.has_begun:
            raise UserError("comes between two steps; enter it after the step", field="session.anchor")
        with self._engine.at_anchor():
            yield

    # Checkpoints --------------------------------------------------------------------------------------------------

    def epochs(self, num_epochs: int) -> Iterator[int]:
        """Return the numbers, from 0, of the epochs to train: all ``num_epochs``, or what a loaded state leaves."""
        return self._resume.epochs(num_epochs)

    def state_dict(self) -> dict[str, Any]:
        """Return how far training has come (steps, epochs, batches), in plain numbers; the same on every rank."""
        return self._resume.state_dict(self._steps.num)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where `state_dict` was taken. Every rank calls it; what counts is rank 0's ``state``.

        Weights, optimizer and scheduler are the script's to load.

        Raises:
            UserError: A step has been taken or a loop has begun, or this is no such state.
        """
        self._steps.go_to(self._resume.load_state_dict(state, self._steps.num))
        if self._engine is not None:
            self._engine.resume_at(self._steps.num)

    def save_exchange(self, folder: str | Path) -> None:
        """Keep on disk what every rank's exchange carries after this step: a file a rank.

        The files of the newest whole step before it stay as well, and older ones are removed. Every rank calls it
        together, between two steps, with a folder that may be each host's own or one that all share. Nothing is
        written in a trial, whose steps are undone, nor by a single process.

        Raises:
            UserError: One of the ranks cannot write; raised on every rank.
        """
        if self._checkpoint is not None and not self.in_trial:
            self._checkpoint.save(folder, self._steps.num)

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
        if self._checkpoint is not None:
            self._steps.go_to(self._checkpoint.load(folder, self._steps.num))

    def close(self) -> None:
        """Undo a trial that was left, write out what is pending, leave the group and let go of the model."""
        self._tell_of_share()
        if self._trials is not None:
            self._trials.leave()
        self._loops.close()
        self.is_closed = True
        if self._engine is not None:
            self._engine.close()
            self._recorder.traces(self._engine.drain_traces())  # of the last step, now that all has arrived
        self._stepping.close()
        self._control.close()
        if self._group is not None:
            self._group.close()
        self._recorder.close()
        self.when_closed.close()

    def _tell_of_share(self) -> None:
        if self._loops.has_evaluated_share:
            self._ranks.warn(_OF_LAST_SHARE.format(num_ranks=self.num_ranks))

    # After a step -------------------------------------------------------------------------------------------------

    def _stepped(self, outcome: Outcome | None, loss: Tensor | float | None, scale: float | None) -> None:
        """Finish a step, once the optimizer has stepped; ``outcome`` is None where nothing is exchanged."""
        self._on_first_step()
        self._on_first_step = lambda: None
        dropped_by = "" if outcome is None else self._follow_up.after_exchange(outcome)
        if self._scheduler is not None and self._scheduler_interval == "step":
            self._scheduler.step()
        if outcome is not None:
            self._follow_up.after_step(outcome, loss, scale, dropped_by)
            return
        self._recorder.metric(self._metric_without_exchange(number(loss), self._phases.lap()))
        self._loops.stepped(in_trial=False)
        self._steps.count()

    def _progress(self) -> str:
        return f"{self._steps.num} training steps taken"

    def _metric_without_exchange(self, loss: float | None, phases: dict[Phase, float]) -> dict[str, Any]:
        return {"step": self._steps.num, "loss": loss, "step_seconds": sum(phases.values())}

    def _trials_ended(self, have_begun: bool) -> None:
        self._follow_up.trials_ended(have_begun)

    def _loop_left(self) -> None:
        """Tell what goes on where a loop was left by ``break``, on every rank, or by an exception, on this one."""
        try:
            self.end_round()
        except (CommunicationError, PlanMismatchError) as error:
            self._ranks.warn(f"this rank has left its loop, and others have not ({error})", on_each=True)

    def _scheduler_warning(self) -> str:
        return "" if self._scheduler is not None else warning_of_scheduler(self._optimizers, self._extra_state)

    def _snapshot(self) -> Snapshot:
        def others() -> list[Stateful | torch.optim.Optimizer]:
            handed_over = self._extra_state if self._scheduler is None else (*self._extra_state, self._scheduler)
            return [self._scale, self._loops, *self._optimizers[1:], *handed_over]

        assert self._engine is not None
        self._engine.settle()
        return Snapshot(TrainingState(self._model, self._optimizers[0], self._engine.flat_buffers, others))
