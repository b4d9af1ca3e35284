"""What a session's calls set in motion: the engine's steps, what follows each of them, the script's loops, trials."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from trimtab_api.errors import UserError

from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.checkpoint.snapshot import Snapshot, Stateful, TrainingState
from trimtab.control.client import ControlClient
from trimtab.data.loops import Loops
from trimtab.data.sharded_loader import Loaders
from trimtab.engine.exchange.consensus import PlanMismatchError
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.model_checks import check_models_are_alike
from trimtab.engine.optimizer.stepper import OptimizerStepper, warning_of_scheduler
from trimtab.engine.phase_timer import Phase
from trimtab.engine.single_process import SingleProcessEngine
from trimtab.engine.step_engine import StepEngine
from trimtab.engine.step_lifecycle import StepLifecycle
from trimtab.kernels.warm_up import warm_up
from trimtab.plan.plan import Plan
from trimtab.process.exit_handlers import at_exit, only_in_this_process
from trimtab.run_files.recorder import Recorder
from trimtab.session.announcements import ControlMessages, MessagesForAll
from trimtab.session.checkpoints.exchange_checkpoint import ExchangeCheckpoint
from trimtab.session.checkpoints.job_checkpoints import Checkpointing
from trimtab.session.checkpoints.job_state import JobState
from trimtab.session.checkpoints.proven_store import open_proven
from trimtab.session.checkpoints.resume import ResumeState
from trimtab.session.options import SessionOptions
from trimtab.session.rank_ops import RankOps
from trimtab.session.single_process import FollowUpAlone, NoExchangeCheckpoint, NoTrials
from trimtab.session.step_counter import StepCounter
from trimtab.session.step_follow_up import StepFollowUp
from trimtab.session.trials import TrialRunner
from trimtab.transport.base import CommunicationError
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import barrier

#: Warning of a metric that no rank has added up over all.
_OF_SHARE = (
    "session.report() got figures of rank 0's share of the data alone, 1 / {num_ranks}, because"
    " the loop before it was over session.batches; combine them with session.all_reduce, or loop"
    " over the loader itself on rank 0"
)
#: Warning at the end, of a loop after which nothing was reported.
_OF_LAST_SHARE = (
    "the last loop over session.batches saw rank 0's share of the data alone, 1 / {num_ranks},"
    " and session.all_reduce was not called after it; unless the script combines its figures, loop"
    " over the loader itself on rank 0"
)


class Training:
    """One process's part in a job's training, alone or among ranks; `trimtab.Session` is what a script sees of it."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        options: SessionOptions,
        *,
        group: Group | None,
        plan: Plan,
        recorder: Recorder,
        ranks: RankOps,
        control_client: ControlClient | None,
        checkpoints: CheckpointSettings | None,
        metric_alone: Callable[[float | None, dict[Phase, float]], dict[str, Any]],
    ) -> None:
        """Meet the other ranks.

        Args:
            model: The model.
            optimizers: What a step steps.
            options: How the session trains.
            group: The ranks that exchange; None where one process trains alone.
            plan: What to follow first.
            recorder: Takes the lines of the run's files.
            ranks: What the script may ask of all ranks.
            control_client: Rank 0's end of the control loop.
            checkpoints: Where checkpoints of the job are kept; None: nowhere.
            metric_alone: Makes a line of ``metrics.jsonl`` where nothing is exchanged.
        """
        self.when_closed = contextlib.ExitStack()
        """Callbacks for when the session has been closed."""
        self.is_closed = False
        """True if `close` was called."""
        self.model, self._optimizers, self._options = model, optimizers, options
        self._group, self._recorder, self.ranks = group, recorder, ranks
        self._control = ControlMessages(group, control_client)
        self.checkpointing: Checkpointing | None = None
        self._on_first_step: Callable[[], None] = lambda: None
        self.steps = StepCounter()
        loaders, alternates = Loaders(ranks.rank, ranks.num_ranks, options.seed), options.alternating_optimizers
        self.loops = Loops(loaders, self._control, ranks, self, alternating_optimizers=alternates)
        self.resume = ResumeState(group, self.loops, ranks.warn)
        self.trials: TrialRunner | NoTrials = NoTrials()
        self.exchange_checkpoint: ExchangeCheckpoint | NoExchangeCheckpoint = NoExchangeCheckpoint()
        self.engine: StepEngine | SingleProcessEngine
        if group is None:
            self.stepping = self._lifecycle(lambda stepper: SingleProcessEngine(optimizers, stepper, plan))
            self.engine, self.phases = self.stepping.engine, self.stepping.stepper.phases
            self.follow_up: StepFollowUp | FollowUpAlone = FollowUpAlone(
                recorder, self.loops, self.phases, self.steps, metric_alone, self._save
            )
        else:
            self._join(group, plan)
        own_engine = self.engine if isinstance(self.engine, StepEngine) else None
        self.state = JobState(model, optimizers, options, self.loops, self.steps, own_engine, self._control)
        if checkpoints is not None:
            tiers = open_proven(checkpoints, group, self.ranks)
            self.checkpointing = Checkpointing(checkpoints, tiers, self.state, group, ranks, recorder)
            self.checkpointing.restore()
            own = weakref.ref(self.checkpointing)
            take_back = at_exit(lambda: None if (open_one := own()) is None else open_one.close())
            self.when_closed.callback(take_back)  # it is called where a script closes no session
        recorder.begin()
        self.phases.lap()

    def _lifecycle(self, make_engine: Callable[[OptimizerStepper], StepEngine | SingleProcessEngine]) -> StepLifecycle:
        return StepLifecycle(
            self._optimizers,
            self._options.scale,
            make_engine,
            self._stepped,
            alternating_optimizers=self._options.alternating_optimizers,
        )

    def _join(self, group: Group, plan: Plan) -> None:
        """Take part in the ranks' steps."""
        recorder, model = self._recorder, self.model
        recorder.starting("sending the weights of rank 0 to all ranks")
        check_models_are_alike(group, model)
        others = (each for each in self._options.extra_state if isinstance(each, torch.optim.Optimizer))
        stepped = (*self._optimizers, *others)

        def make_engine(stepper: OptimizerStepper) -> StepEngine:
            return StepEngine(
                model,
                stepped,
                group,
                plan,
                scale=self._options.scale,
                stepper=stepper,
                messages=MessagesForAll(self._control, self._has_message),
                before_backward=lambda: trials.before_backward(),
                say=self.ranks.say,
            )

        self.stepping = self._lifecycle(make_engine)
        engine = self.stepping.engine
        assert isinstance(engine, StepEngine)
        trials = TrialRunner(model, engine, lambda: self._snapshot(engine), self._control.trials)
        self.engine, self.trials, self.phases = engine, trials, self.stepping.stepper.phases
        self.exchange_checkpoint = ExchangeCheckpoint(engine, self._control, self.ranks.say)
        self._tell_at_end(group)
        recorder.starting("loading kernels, which are compiled the first time that a machine trains")
        self.follow_up = follow_up = StepFollowUp(
            engine,
            trials,
            ranks=self.ranks,
            control=self._control,
            loops=self.loops,
            recorder=recorder,
            phases=self.phases,
            steps=self.steps,
            scheduler_warning=self._scheduler_warning,
            save=self._save,
        )
        warm_up(engine.flat_buffers.grad.device)
        recorder.starting("waiting for the other ranks to have their kernels ready")
        follow_up.follow_first()
        barrier(group)

    def checkpoint(self, *, wait: bool) -> None:
        """Write a checkpoint now; see `Session.checkpoint`."""
        if self.checkpointing is None:
            raise UserError("needs spec.checkpoint in the job's file, which says where", field="session.checkpoint")
        if self.engine.has_begun:
            raise UserError("comes between two steps; call it after the step", field="session.checkpoint")
        if not self.trials.is_active:
            self.checkpointing.save(wait=wait)

    def _save(self) -> None:
        """Write a checkpoint, if one is due."""
        if self.checkpointing is not None:
            self.checkpointing.follow()

    def _tell_at_end(self, group: Group) -> None:
        """Have the end of this process say how far it came, and what its last figures were of."""
        training = weakref.ref(self)
        group.tell_of_end(lambda: "" if (own := training()) is None else f"{own.steps.num} training steps taken")
        tell = only_in_this_process(lambda: None if (own := training()) is None else own.tell_of_share())
        atexit.register(tell)  # most scripts close no session
        self.when_closed.callback(atexit.unregister, tell)

    def on_first_step(self, call: Callable[[], None]) -> None:
        """Call ``call`` once, when this process has taken a step."""
        self._on_first_step = call

    def synchronize(self) -> None:
        """Make every ``grad`` what the optimizer is to see, without the loss scale."""
        self.engine.synchronize()
        self._options.scale.unscale(self._optimizers)

    def report(self, values: dict[str, float]) -> None:
        """Record an evaluation, from rank 0; quiet in a trial."""
        if self.loops.has_evaluated_share:
            self.loops.reduced_over_ranks()
            self.ranks.warn(_OF_SHARE.format(num_ranks=self.ranks.num_ranks))
        if self.ranks.is_main and (not self.trials.is_active or self.trials.is_suspended):
            self._recorder.metric({"event": "evaluation", "step": self.steps.num, **values})

    def close(self) -> None:
        """Undo a trial that was left, write out what is pending, leave the group and let go of the model."""
        self.tell_of_share()
        self.trials.leave()
        if self.checkpointing is not None:
            self.checkpointing.close()
        self.loops.close()
        self.is_closed = True
        self.engine.close()
        self._recorder.traces(self.engine.drain_traces())  # of the last step, now that all has arrived
        self.stepping.close()
        self._control.close()
        if self._group is not None:
            self._group.close()
        self._recorder.close()
        self.when_closed.close()

    def tell_of_share(self) -> None:
        """Warn if the last loop's figures are of this rank's share alone."""
        if self.loops.has_evaluated_share:
            self.ranks.warn(_OF_LAST_SHARE.format(num_ranks=self.ranks.num_ranks))

    # After a step -------------------------------------------------------------------------------------------------

    def _stepped(self, outcome: Outcome, loss: Tensor | float | None, scale: float | None) -> None:
        """Finish a step, once the optimizer has stepped."""
        self._on_first_step()
        self._on_first_step = lambda: None
        dropped_by = self.follow_up.after_exchange(outcome)
        if self._options.scheduler is not None and self._options.scheduler_interval == "step":
            self._options.scheduler.step()
        self.follow_up.after_step(outcome, loss, scale, dropped_by)

    def _has_message(self) -> bool:
        """Return whether a message follows the step; the communication thread asks."""
        has_one = self._control.is_pending or self.loops.has_news or self.follow_up.has_left_out
        is_due = self.checkpointing is not None and self.checkpointing.has_news
        return (has_one or is_due) and not self.trials.is_active

    # What the script's loops tell (`trimtab.data.loops.LoopEvents`) -----------------------------------------------

    def on_next_batch(self, *, is_outermost: bool) -> None:
        """Count a step that was thrown away within a round of local steps; write the checkpoint that is due."""
        self.stepping.on_next_batch()
        if self.checkpointing is not None and is_outermost:  # an evaluation between two steps is over by then
            self.checkpointing.write_agreed()

    def on_epoch_end(self) -> None:
        """Bring together what ranks have trained by themselves."""
        if not self.is_closed and not self.trials.is_active:
            self.follow_up.end_round()

    def on_loop_left(self) -> None:
        """Tell what goes on where a loop was left by ``break``, on every rank, or by an exception, on this one."""
        try:
            self.on_epoch_end()
        except (CommunicationError, PlanMismatchError) as error:
            self.ranks.warn(f"this rank left its loop before the other ranks ({error})", on_each=True)

    def trials_ended(self, have_begun: bool) -> None:
        """Take the next step for one of training."""
        self.follow_up.trials_ended(have_begun)

    def _scheduler_warning(self) -> str:
        is_handed_over = self._options.scheduler is not None
        return "" if is_handed_over else warning_of_scheduler(self._optimizers, self._options.extra_state)

    def _snapshot(self, engine: StepEngine) -> Snapshot:
        def others() -> list[Stateful | torch.optim.Optimizer]:
            scheduler, extra_state = self._options.scheduler, self._options.extra_state
            handed_over = extra_state if scheduler is None else (*extra_state, scheduler)
            return [self._options.scale, self.loops, *self._optimizers[1:], *handed_over]

        engine.settle()
        return Snapshot(TrainingState(self.model, self._optimizers[0], engine.flat_buffers, others))
