"""Training for a few steps under candidate plans, and undoing it.

The user's own loop runs the steps: `TrialRunner.run` gives it batches. So the loop may do more than train meanwhile.
What is evaluated or saved in a trial is the model as it was before it: a forward pass that belongs to no batch of the
trial suspends it, and the next batch resumes it. Where training goes on without the trial's batches, the trial ends as
if it had never begun.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from trimtab_api.errors import UserError

from trimtab.checkpoint.snapshot import Snapshot
from trimtab.control.types import StepReport, TrialReport
from trimtab.data.replay import Replay
from trimtab.engine.checkpoint import load_step_state, step_state
from trimtab.engine.gradients.uncompiled_hook import ModuleHook, is_compiled, unscripted_parts
from trimtab.engine.step_engine import StepEngine
from trimtab.plan.plan import Plan

#: Passes thrown away in a row, for each step that a trial wants, after which its loop is taken to step no more.
_PASSES_IN_VAIN = 10
_STEPS_NO_MORE = "the loop discards every step of a trial"


class _Trial:
    """A candidate under trial."""

    def __init__(self, replay: Replay, others: list[Replay], before: Snapshot, undo: Callable[[], None]) -> None:
        self.replay = replay
        self.marked = [replay, *others]
        """Every loop that was there before it, all of which go back to where they were."""
        self.before = before
        """The state that it is to leave behind."""
        self.undo = undo
        """Brings the exchange back to the plan before."""
        self.steps: list[StepReport] = []
        """Reports of the trial's steps."""
        self.suspended: Snapshot | None = None
        """Its state, while the state before it is in force."""
        self.has_graph = False
        """True if the model has run for the batch, so that a graph may hold its weights."""
        self.num_discarded = 0
        """Exchanges that had been thrown away by its last step."""
        self.is_left = False


class TrialRunner:
    """Runs trials in one session; at most one candidate at a time."""

    def __init__(
        self,
        model: nn.Module,
        engine: StepEngine,
        snapshot: Callable[[], Snapshot],
        tell: Callable[[list[TrialReport]], None],
    ) -> None:
        """``tell`` takes what the candidates measured, once for each `run`."""
        self._model, self._engine, self._snapshot, self._tell = model, engine, snapshot, tell
        self._hooks: list[RemovableHandle] = []
        self._trial: _Trial | None = None
        self._reports: list[TrialReport] = []
        """Reports of the present run's candidates, until they are told."""
        self._num_candidates = 0

    @property
    def is_active(self) -> bool:
        """True if a candidate is under trial, suspended or not."""
        return self._trial is not None

    @property
    def is_suspended(self) -> bool:
        """True if the state before the trial is in force although it has not ended."""
        return self._trial is not None and self._trial.suspended is not None

    def run(
        self, replay: Replay, others: list[Replay], plans: Sequence[Plan], iterations: int
    ) -> Generator[Any, None, str | None]:
        """Let the loop of ``replay`` train under each candidate, while ``others`` are under way as well.

        What was measured is told also where the loop is left.

        Returns:
            Why no further trials can be run, or None: a loop that throws away pass after pass, in a trial where nothing
            then changes, would never come to its end.
        """
        reports = self._reports = []
        try:
            began = time.perf_counter()
            before = self._snapshot()
            for plan in plans:
                trial = self._begin(plan, replay, others, before)
                try:
                    while len(trial.steps) < iterations and not trial.is_left:
                        if self._num_discarded - trial.num_discarded >= _PASSES_IN_VAIN * iterations:
                            return _STEPS_NO_MORE
                        self._resume(trial)
                        yield replay.next()
                finally:
                    self._end(trial)
                if trial.is_left:
                    return None
                ended = time.perf_counter()
                reports.append(_summary(plan, trial.steps, ended - began))
                began = ended
            return None
        finally:
            self._tell_reports(reports)

    def observe(self, before: StepReport | None, report: StepReport) -> None:
        """Add a step of the trial; all is known by now of the step ``before`` it."""
        assert self._trial is not None
        if before is not None and self._trial.steps:
            self._trial.steps[-1] = before
        self._trial.steps.append(report)
        self._trial.has_graph, self._trial.num_discarded = False, self._num_discarded

    @property
    def _num_discarded(self) -> int:
        """Exchanges thrown away so far, on every rank as many."""
        return self._engine.pending_step.num_discarded

    def _before_forward(self, module: nn.Module, inputs: Any) -> None:
        """Suspend the trial if the model, or a part of it, is about to run for none of the trial's batches.

        That is so before a batch is drawn, and where the whole model is evaluated before it has run for the batch.
        """
        trial = self._trial
        if trial is None or self._engine.exchanger.is_mid_step:
            return
        is_training = module.training or torch.is_grad_enabled()
        if trial.replay.num_since_step == 0:
            self._suspend(trial)
            if is_training:  # it goes on without the trial's batches: as if there had been none
                trial.before.restore_generators()
        elif not is_training and module is self._model and not trial.has_graph:
            self._suspend(trial)
        elif is_training:
            self._resume(trial)
            trial.has_graph = True

    def _before_state_dict(self, *_: Any) -> None:
        """Suspend the trial if the model is about to be saved between steps: it is saved as it was before the trial."""
        trial = self._trial
        if trial is not None and not self._engine.exchanger.is_mid_step and trial.replay.num_since_step == 0:
            self._suspend(trial)

    def before_backward(self) -> None:
        """End the trial if a step's first gradient, which has come, belongs to none of the trial's batches.

        Raises:
            UserError: Weights of the trial have entered the gradient.
        """
        trial = self._trial
        if trial is None or (trial.suspended is None and trial.replay.num_since_step > 0):
            return
        if trial.suspended is None:
            raise UserError(
                "a trial is under way, and this backward pass belongs to none of its batches; draw every batch from"
                " session.batches, or set spec.communication.trials.budget: 0",
                field="session.batches",
            )
        self.leave()

    def leave(self) -> None:
        """End the trial, whose loop goes on no more, as if it had never been."""
        if self._trial is not None:
            self._trial.is_left = True
            self._end(self._trial)
            self._tell_reports(self._reports)

    def _begin(self, plan: Plan, replay: Replay, others: list[Replay], before: Snapshot) -> _Trial:
        engine = self._engine
        in_force, step, carried = engine.plan, engine.step_tag.step, copy.deepcopy(step_state(engine))

        def undo() -> None:
            engine.plans.resume(in_force, step)
            load_step_state(engine, carried)

        self._num_candidates += 1
        engine.plans.try_out(plan.with_version(in_force.version), step, self._num_candidates)
        self._trial = _Trial(replay, others, before, undo)
        self._trial.num_discarded = self._num_discarded
        for each in self._trial.marked:
            each.mark()
        self._watch_model()
        return self._trial

    def _watch_model(self) -> None:
        """Watch the model, only while there is a trial: hooks on every part would slow down each forward pass."""
        parts = unscripted_parts(self._model)
        if any(map(is_compiled, parts)):
            parts = parts[:1]  # hooks inside would have it compiled anew
        self._hooks = [part.register_forward_pre_hook(ModuleHook(self._before_forward)) for part in parts]
        self._hooks += [part.register_state_dict_pre_hook(ModuleHook(self._before_state_dict)) for part in parts[:1]]

    def _tell_reports(self, reports: list[TrialReport]) -> None:
        """Tell what a `run` has measured, once: where its loop is left, at once, and not when the loop is collected."""
        if reports is self._reports:
            self._reports = []
            self._tell(reports)

    def _end(self, trial: _Trial) -> None:
        if self._trial is trial:
            self._trial = None
            if not (trial.is_left and trial.suspended):  # else it is in force, and a graph may hold its weights
                trial.before.restore()
            trial.undo()
            for each in trial.marked:
                each.rewind()
            for hook in self._hooks:
                hook.remove()

    def _suspend(self, trial: _Trial) -> None:
        if trial.suspended is None:
            trial.suspended = self._snapshot()
            trial.before.restore_learned()

    def _resume(self, trial: _Trial) -> None:
        if trial.suspended is not None:
            trial.suspended.restore_learned()
            trial.suspended = None


def _summary(plan: Plan, reports: list[StepReport], wall_seconds: float) -> TrialReport:
    # The first step under a candidate seeds thresholds and warms paths up; it is not what the plan would cost.
    steps = reports[1:] or reports

    def median(field: str) -> float:
        return float(statistics.median(getattr(step, field) for step in steps))

    return TrialReport(
        plan=plan,
        step_seconds=median("step_seconds"),
        compute_seconds=median("compute_seconds"),
        compress_seconds=median("compress_seconds"),
        collective_seconds=median("collective_seconds"),
        num_bytes=int(median("num_bytes")),
        num_messages=int(median("num_messages")),
        gain=statistics.median(gains) if (gains := [step.gain for step in steps if step.gain is not None]) else None,
        num_steps=len(steps),
        wall_seconds=wall_seconds,
    )
