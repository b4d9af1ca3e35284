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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Literal, SupportsFloat

import torch
from torch import Tensor, nn
from trimtab_api.errors import UserError

from trimtab.checkpoint.snapshot import Snapshot, Stateful, TrainingState
from trimtab.control.client import ControlClient, plan_of, trials_of
from trimtab.data.batches import Batches
from trimtab.data.loops import Loops
from trimtab.data.sharded_loader import Loaders
from trimtab.engine.debug_state import DebugState, debug_state
from trimtab.engine.exchange.consensus import PlanMismatchError
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.local_sgd.state_watch import StateWatch
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
from trimtab.run_files.schema import OF_EVERY_EVALUATION
from trimtab.session.announcements import ControlMessages, MessagesForAll
from trimtab.session.dropped_steps import DropLimit, LeftOut, culprits
from trimtab.session.exchange_checkpoint import ExchangeCheckpoint
from trimtab.session.local_rounds import LocalRounds
from trimtab.session.resume import ResumeState
from trimtab.session.script_numbers import check_one_number, one_number
from trimtab.session.step_counter import StepInTrial
from trimtab.session.step_metrics import Rounds, metric_of, number, report_of, round_end_of, said_of
from trimtab.session.trials import TrialRunner
from trimtab.transport.base import CommunicationError
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, barrier, gather_json, json_of

_NAMES: Read[list[str]] = json_of(list[str])
_LEFT_OUT: Read[LeftOut] = json_of(LeftOut)
#: What is said of a metric that no rank has added up over all.
_OF_SHARE = (
    "session.report() is of rank 0's share, 1 / {num_ranks} of the data, since the loop before it was over"
    " session.batches: add up over ranks by session.all_reduce, or loop over the loader itself on rank 0"
)
#: What is said at the end, of a loop after which nothing was reported either.
_OF_LAST_SHARE = (
    "the last loop over session.batches was of rank 0's share, 1 / {num_ranks} of the data, and session.all_reduce has"
    " added nothing up since: unless the script adds up by itself, loop over the loader itself on rank 0"
)

#: What is said once, when the first plan of local steps comes into force.
_OF_LOCAL_STEPS = (
    "local steps: ranks' weights differ until each round ends. Evaluate and save after a loop over session.batches,"
    " after session.end_round() or within session.anchor(), and decide by session.all_reduce, as early stopping does;"
    " communication.localSteps: {max: 0} forbids local steps"
)

SchedulerInterval = Literal["epoch", "step"]


class Session(ExchangeCheckpoint, ResumeState, LocalRounds):
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
        seed: int = 0,
    ) -> None:
        self.when_closed = contextlib.ExitStack()
        """What is to be done when the session has been closed."""
        self.at_first_step: Callable[[], None] | None = None
        """What is to be done once, when this process has taken a step."""
        self._model, self._optimizers = model, as_list(optimizer)
        self._scheduler, self._scheduler_interval = scheduler, scheduler_interval
        self._scale, self._extra_state = scale or LossScale(None), tuple(extra_state)
        super().__init__(group)
        self._recorder = recorder
        self._left_out = LeftOut()
        """Of this rank, as far as rank 0 does not know of them."""
        self._control = ControlMessages(group, control_client)
        self._static_plan = plan
        self._engine: StepEngine | None = None
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
        """Whether `close` was called."""
        self._rounds = Rounds(self.rank)
        self._drop_limit = DropLimit()
        self._step = 0
        loaders = Loaders(self.rank, self.num_ranks, seed)
        told = (
            self._say,
            self._warn,
            self._trials_ended,
            self._stepping.on_next_batch,
            self.end_round,
            self._loop_left,
        )
        self._loops = Loops(loaders, self._control, *told, alternating_optimizers=alternating_optimizers)
        if group is not None:
            session = weakref.ref(self)
            group.tell_of_end(lambda: "" if (open_one := session()) is None else open_one._progress())
            tell = only_in_this_process(lambda: None if (open_one := session()) is None else open_one._tell_of_share())
            atexit.register(tell)  # most scripts close no session
            self.when_closed.callback(atexit.unregister, tell)
            recorder.starting("loading kernels, which are compiled the first time that a machine trains")
            assert self._engine is not None
            warm_up(self._engine.flat_buffers.grad.device)
            recorder.starting("waiting for the other ranks to have their kernels ready")
            first = self._control.receive()
            if first is not None:
                self._follow(first)
            self._tell_of_local_steps()
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
            say=self._say,
        )
        flat_buffers = self._engine.flat_buffers
        self._state_watch = StateWatch(flat_buffers.names, flat_buffers.parameters, self._engine.optimizers, self._say)
        self._trials = TrialRunner(self._model, self._engine, self._snapshot, self._control.trials)

    def _has_message(self) -> bool:
        """Return whether a message follows the step; the communication thread asks."""
        return not self.in_trial and (self._control.is_pending or self._loops.has_news or self._left_out.num > 0)

    # What a training script reads ---------------------------------------------------------------------------------

    @property
    def in_trial(self) -> bool:
        """Whether the present steps belong to a trial: they will be undone, so a user's logging should be quiet."""
        return self._trials is not None and self._trials.is_active

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._engine.plan if self._engine else self._static_plan

    @property
    def steps(self) -> int:
        """Training steps taken, trials not counted. During a trial it equals no number (`StepInTrial`)."""
        return StepInTrial(self._step) if self.in_trial else self._step

    # The loop -----------------------------------------------------------------------------------------------------

    def batches(self, loader: Iterable[Any], *, sharded: bool = False) -> Batches:
        """This rank's share of ``loader``, and its length; runs trials on the way by replaying batches.

        As with a loader, each ``for`` over it is a new epoch.

        ``sharded``: ``loader`` holds this rank's share alone, as many batches as on every rank; it is taken as it is.
        """
        return self._loops.batches(loader, sharded=sharded)

    def trials(self, step: Callable[[], Any]) -> None:
        """Run the trials that are due, for a loop that draws its batches by itself; call it before each step.

        ``step`` is one whole training step, from drawing a batch to the optimizer's step. Each candidate is tried by
        calling it some times, which is undone as in a loop over `batches`. Raises `UserError` inside such a loop.
        """
        for _ in self._loops.trials():
            step()

    def step(self, loss: Tensor | float | None = None) -> None:
        """Commit or drop the step, step the optimizer, and let the controller speak.

        ``loss``, where given, is one number of Python's, NumPy's or torch's, and is recorded beside the step's times.
        Afterwards gradients are released, as by ``zero_grad(set_to_none=True)``.

        Raises `UserError` for a closure, for what is no number, and after `close`.
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
        """Backward passes inside only accumulate; the exchange comes with the first one outside."""
        return contextlib.nullcontext() if self._engine is None else self._engine.exchanger.passes.no_sync()

    def report(self, **metrics: SupportsFloat) -> None:
        """Record an evaluation (``accuracy=``, ``loss=``), from rank 0; quiet in a trial.

        Raises `UserError` where a value is no number; a tensor or an array of one element is one. And for the names
        `step`, `time` and `event`, which every record has by itself.
        """
        for name in sorted(OF_EVERY_EVALUATION & metrics.keys()):
            raise UserError("every record has it by itself; leave it out", field="session.report", value=name)
        values = {name: one_number(value, name) for name, value in metrics.items()}
        if self._loops.has_evaluated_share:
            self._loops.has_evaluated_share = False
            self._warn(_OF_SHARE.format(num_ranks=self.num_ranks))
        if self.is_main and (not self.in_trial or (self._trials is not None and self._trials.is_suspended)):
            self._recorder.metric({"event": "evaluation", "step": self._step, **values})

    def debug_state(self) -> DebugState:
        """A copy of what this rank's exchange holds between two steps: residuals, and what waits or has arrived.

        For tests, and for people who ask where a gradient is; it costs a copy of the model or more. Any rank may call
        it by itself, also after `close`. It changes nothing and waits for nothing.
        """
        return DebugState() if self._engine is None else debug_state(self._engine)

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
            self._warn(_OF_LAST_SHARE.format(num_ranks=self.num_ranks))

    # After a step -------------------------------------------------------------------------------------------------

    def _stepped(self, outcome: Outcome | None, loss: Tensor | float | None, scale: float | None) -> None:
        """The optimizer has stepped; ``outcome`` is None where nothing is exchanged."""
        if self.at_first_step is not None:
            self.at_first_step()
            self.at_first_step = None
        dropped_by = "" if outcome is None else self._after_exchange(outcome)
        if self._scheduler is not None and self._scheduler_interval == "step":
            self._scheduler.step()
        if outcome is not None:
            self._after_step(outcome, loss, scale, dropped_by)
            return
        self._recorder.metric(self._metric_without_exchange(number(loss), self._phases.lap()))
        self._loops.stepped(in_trial=False)
        self._step += 1

    def _progress(self) -> str:
        return f"{self._step} training steps taken"

    def _metric_without_exchange(self, loss: float | None, phases: dict[Phase, float]) -> dict[str, Any]:
        return {"step": self._step, "loss": loss, "step_seconds": sum(phases.values())}

    def _after_exchange(self, outcome: Outcome) -> str:
        """Say what was wrong with it, and set right what it found.

        Returns the ranks and parameters whose gradients were not finite; empty where all were.
        """
        names = [[] if rank != self.rank else list(outcome.non_finite[:5]) for rank in range(self.num_ranks)]
        if outcome.non_finite:
            print(f"rank {self.rank}, step {self._step}: {said_of(outcome)}", flush=True)
        if outcome.non_finite and outcome.is_finite and not self.is_main and not self.in_trial:
            self._left_out = self._left_out.with_one(outcome.non_finite)
        if outcome.consensus is not None and not outcome.consensus.finite:
            assert self._group is not None
            names = gather_json(self._group, names[self.rank], _NAMES)
        if outcome.consensus is not None and outcome.consensus.weights == "rounding":
            assert self._engine is not None
            self._say("weights differ by rounding, as on unlike processors: rank 0's are sent to all now and then")
            self._engine.align_weights()
        return culprits(names)

    def _after_step(self, outcome: Outcome, loss: Tensor | float | None, scale: float | None, dropped_by: str) -> None:
        phases = self._phases.lap()
        assert self._engine is not None
        is_barred = self._control.offers_rounds and not self._state_watch.allows_rounds()
        steps_per_epoch = 0 if is_barred else self._loops.num_steps
        report = report_of(outcome, self.plan, self._step, phases, scale, loss, steps_per_epoch=steps_per_epoch)
        before = self._rounds.add(report, outcome.consensus)
        self._engine.exchanger.report_loss(self._rounds.loss)
        if self.is_main:
            view, in_trial = self._control.view, self.in_trial
            self._recorder.metric(metric_of(report, outcome, phases, view, in_trial=in_trial, dropped_by=dropped_by))
        self._loops.stepped(in_trial=self.in_trial)
        if self._trials is not None and self._trials.is_active:
            self._trials.observe(None if report.plan.local_steps else before, report)
            return
        self._step += 1
        if outcome.consensus is not None:
            self._loops.exchanged(self._engine.exchanger.own_squared_norm)
        self._drop_limit.add(
            dropped=bool(dropped_by) or not report.finite, by=dropped_by, is_scaling=(scale or 1.0) > 1
        )
        self._control.profile(self._engine.profile(report.step, outcome, report.loss))
        self._recorder.traces(self._engine.drain_traces())
        self._follow_rank_0(outcome)
        self._control.step(before, self._loops.num_steps_left, ends_round=self._rounds.has_ended)

    def _end_round(self) -> None:
        assert self._engine is not None
        if (outcome := self._engine.end_round()) is not None:
            self._after_exchange(outcome)
            self._recorder.metric(round_end_of(outcome, self.plan, self._step, self._phases.lap()))
            before = self._rounds.end_early(outcome.consensus)
            self._follow_rank_0(outcome)
            self._control.loop_ended(before)

    def _loop_left(self) -> None:
        """A loop was left by ``break``, on every rank, or by an exception, on this one: that goes on to be told."""
        try:
            self.end_round()
        except (CommunicationError, PlanMismatchError) as error:
            self._warn(f"this rank has left its loop, and others have not ({error})", on_each=True)

    def _follow_rank_0(self, outcome: Outcome) -> None:
        if outcome.consensus is not None and outcome.consensus.has_message:
            assert self._group is not None
            if problem := self._loops.compare(self._group):
                self._recorder.decision({"record": "data", "time": round(self._recorder.now, 4), "problem": problem})
            self._tell_what_was_left_out(self._group)
            if message := self._control.receive():
                self._follow(message)

    def _tell_what_was_left_out(self, group: Group) -> None:
        """Have rank 0 record the local steps that others have left out; of its own it has a line each."""
        own, self._left_out = self._left_out, LeftOut()
        told = gather_json(group, asdict(own), _LEFT_OUT)
        if num := sum(each.num for each in told):
            by = culprits([list(each.names) for each in told])
            self._recorder.metric({"event": "left out", "step": self._step - 1, "steps": num, "by": by})

    # Rank 0's messages --------------------------------------------------------------------------------------------

    def _follow(self, message: dict[str, Any]) -> None:
        assert self._engine is not None
        assert self._trials is not None
        if "adopt" in message:
            self._engine.plans.adopt(plan_of(message), self._step)
            self._tell_of_local_steps()
            self._rounds.restart()
        elif self._loops.agree_on_trials(self._engine.group, self._trials, *trials_of(message)):
            if self._scheduler is None and (warning := warning_of_scheduler(self._optimizers, self._extra_state)):
                self._say(warning)
        else:
            self._trials_ended(False)

    def _tell_of_local_steps(self) -> None:
        if self.plan.local_steps > 1:
            self._say(_OF_LOCAL_STEPS)

    def _trials_ended(self, have_begun: bool) -> None:
        """The next step is one of training; trials that were to begin, and did not, are told of."""
        self._phases.lap()
        self._rounds.restart()
        if not have_begun:
            self._control.trials([])

    def _snapshot(self) -> Snapshot:
        def others() -> list[Stateful | torch.optim.Optimizer]:
            handed_over = self._extra_state if self._scheduler is None else (*self._extra_state, self._scheduler)
            return [self._scale, self._loops, *self._optimizers[1:], *handed_over]

        assert self._engine is not None
        self._engine.settle()
        return Snapshot(TrainingState(self._model, self._optimizers[0], self._engine.flat_buffers, others))
