"""What follows each step of several ranks: it is recorded, the controller is told, its messages are followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from torch import Tensor

from trimtab.control.messages import AdoptPlan, Message
from trimtab.data.loops import Loops
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.local_sgd.optimizer_state_sync import StateWatch
from trimtab.engine.phase_timer import PhaseTimer
from trimtab.engine.step_engine import StepEngine
from trimtab.run_files.recorder import Recorder
from trimtab.session.announcements import ControlMessages
from trimtab.session.dropped_steps import DropLimit, LeftOut, culprits
from trimtab.session.rank_ops import RankOps
from trimtab.session.step_counter import StepCounter
from trimtab.session.step_metrics import Rounds, metric_of, report_of, round_end_of, said_of
from trimtab.session.trials import TrialRunner
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, gather_json, json_of

_NAMES: Read[list[str]] = json_of(list[str])
_LEFT_OUT: Read[LeftOut] = json_of(LeftOut)
#: Line that is printed once, when the first plan of local steps comes into force.
_OF_LOCAL_STEPS = (
    "local steps: weights differ between ranks until a round ends. Evaluate and save after a loop"
    " over session.batches, after session.end_round() or inside session.anchor(). Make decisions,"
    " such as early stopping, with session.all_reduce. To forbid local steps, set"
    " communication.localSteps: {max: 0}"
)


class StepFollowUp:
    """Follows up the steps of one rank among several."""

    def __init__(
        self,
        engine: StepEngine,
        trials: TrialRunner,
        *,
        ranks: RankOps,
        control: ControlMessages,
        loops: Loops,
        recorder: Recorder,
        phases: PhaseTimer,
        steps: StepCounter,
        scheduler_warning: Callable[[], str],
        save: Callable[[], None],
    ) -> None:
        """``scheduler_warning`` returns what to say of a scheduler that trials would move on; empty: nothing.

        ``save`` writes a checkpoint if a rank asks for one; every rank calls it together.
        """
        self._save = save
        self._engine, self._trials, self._ranks, self._control = engine, trials, ranks, control
        self._group: Group = engine.group
        self._loops, self._recorder, self._phases, self._steps = loops, recorder, phases, steps
        self._scheduler_warning = scheduler_warning
        self._rounds, self._drop_limit = Rounds(ranks.rank), DropLimit()
        self._left_out = LeftOut()
        """Local steps that this rank has left out, as far as rank 0 does not know of them."""
        flat_buffers = engine.flat_buffers
        self._state_watch = StateWatch(flat_buffers.names, flat_buffers.parameters, engine.optimizers, ranks.say)

    @property
    def has_left_out(self) -> bool:
        """True if this rank has left out local steps that rank 0 does not know of."""
        return self._left_out.num > 0

    def follow_first(self) -> None:
        """Follow rank 0's first message, before the first step; every rank calls it together."""
        if (first := self._control.receive()) is not None:
            self._follow(first)
        self._tell_of_local_steps()

    def after_exchange(self, outcome: Outcome) -> str:
        """Say what was wrong with an exchange, and set right what it found.

        Returns:
            The ranks and parameters whose gradients were not finite; empty if all were.
        """
        own = self._ranks.rank
        names = [list(outcome.non_finite[:5]) if rank == own else [] for rank in range(self._ranks.num_ranks)]
        if outcome.non_finite:
            print(f"rank {own}, step {self._steps.num}: {said_of(outcome)}", flush=True)
        if outcome.non_finite and outcome.is_finite and not self._ranks.is_main and not self._trials.is_active:
            self._left_out = self._left_out.with_one(outcome.non_finite)
        if outcome.consensus is not None and not outcome.consensus.finite:
            names = gather_json(self._group, names[own], _NAMES)
        if outcome.consensus is not None and outcome.consensus.weights == "rounding":
            self._ranks.say(
                "weights differ by rounding errors, as on different processors; rank 0 sends its weights to"
                " all now and then"
            )
            self._engine.rounds.align_weights()
        return culprits(names)

    def after_step(self, outcome: Outcome, loss: Tensor | float | None, scale: float | None, dropped_by: str) -> None:
        """Record the step, tell the controller and follow rank 0's messages.

        Args:
            outcome: What became of the step.
            loss: As the script gave it.
            scale: The loss scale of the step; None without one.
            dropped_by: What `after_exchange` returned.
        """
        phases = self._phases.lap()
        is_barred = self._control.offers_rounds and not self._state_watch.allows_rounds()
        steps_per_epoch = 0 if is_barred else self._loops.num_steps
        plan, step = self._engine.plan, self._steps.num
        report = report_of(outcome, plan, step, phases, scale, loss, steps_per_epoch=steps_per_epoch)
        before = self._rounds.add(report, outcome.consensus)
        self._engine.exchanger.report_loss(self._rounds.loss)
        if self._ranks.is_main:
            view, in_trial = self._control.view, self._trials.is_active
            self._recorder.metric(metric_of(report, outcome, phases, view, in_trial=in_trial, dropped_by=dropped_by))
        self._loops.stepped(in_trial=self._trials.is_active)
        if self._trials.is_active:
            self._trials.observe(None if report.plan.local_steps else before, report)
            return
        self._steps.count()
        if outcome.consensus is not None:
            self._loops.exchanged(self._engine.exchanger.own_squared_norm)
        self._drop_limit.add(
            dropped=bool(dropped_by) or not report.finite, by=dropped_by, is_scaling=(scale or 1.0) > 1
        )
        self._control.profile(self._engine.profile(report.step, outcome, report.loss))
        self._recorder.traces(self._engine.drain_traces())
        self._follow_rank_0(outcome)
        self._control.step(before, self._loops.num_steps_left, ends_round=self._rounds.has_ended)

    def end_round(self) -> None:
        """Exchange what local steps have done so far, and record it; every rank calls it together."""
        if (outcome := self._engine.rounds.end()) is not None:
            self.after_exchange(outcome)
            self._recorder.metric(round_end_of(outcome, self._engine.plan, self._steps.num, self._phases.lap()))
            before = self._rounds.end_early(outcome.consensus)
            self._follow_rank_0(outcome)
            self._control.loop_ended(before)

    def _follow_rank_0(self, outcome: Outcome) -> None:
        if outcome.consensus is not None and outcome.consensus.has_message:
            if problem := self._loops.compare(self._group):
                self._recorder.decision({"record": "data", "time": round(self._recorder.now, 4), "problem": problem})
            self._tell_what_was_left_out(self._group)
            self._save()
            if message := self._control.receive():
                self._follow(message)

    def _tell_what_was_left_out(self, group: Group) -> None:
        """Have rank 0 record the local steps that others have left out; of its own it has a line each."""
        own, self._left_out = self._left_out, LeftOut()
        told = gather_json(group, asdict(own), _LEFT_OUT)
        if num := sum(each.num for each in told):
            by = culprits([list(each.names) for each in told])
            self._recorder.metric({"event": "left out", "step": self._steps.num - 1, "steps": num, "by": by})

    def _follow(self, message: Message) -> None:
        if isinstance(message, AdoptPlan):
            self._engine.plans.adopt(message.plan, self._steps.num)
            self._tell_of_local_steps()
            self._rounds.restart()
        elif self._loops.agree_on_trials(self._engine.group, self._trials, message.plans, message.iterations):
            if warning := self._scheduler_warning():
                self._ranks.say(warning)
        else:
            self.trials_ended(False)

    def _tell_of_local_steps(self) -> None:
        if self._engine.plan.local_steps > 1:
            self._ranks.say(_OF_LOCAL_STEPS)

    def trials_ended(self, have_begun: bool) -> None:
        """Take the next step for one of training; tell the controller of trials that were to begin, and did not."""
        self._phases.lap()
        self._rounds.restart()
        if not have_begun:
            self._control.trials([])
