"""The training loop's one object: attach, batches, step.

    session = trimtab.attach(model, optimizer)          # configuration comes from the launcher
    for inputs, targets in session.batches(loader):
        loss = criterion(model(inputs), targets)
        loss.backward()
        session.step()                                  # exchange, commit, optimizer.step(), controller

With one process this is plain training.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, SupportsFloat

import torch
from torch import Tensor, nn
from trimtab_api.errors import UserError

from trimtab.announcements import barrier, broadcast_json, broadcast_tensor
from trimtab.arena import Arena
from trimtab.checkpoint.snapshot import Snapshot, Stateful, TrainingState
from trimtab.collectives.group import Group
from trimtab.control.types import StepReport, TrialReport
from trimtab.exchanger import Exchanger, Outcome
from trimtab.kernels.warm_up import warm_up
from trimtab.loss_scale import LossScale
from trimtab.plan import Plan
from trimtab.recorder import Recorder
from trimtab.replay import Replay
from trimtab.sharding import Loaders, Sharded
from trimtab.steering import Steering, plan_of, trials_of

SchedulerInterval = Literal["epoch", "step"]


@dataclass
class _Trials:
    """A candidate under trial: what its steps have measured."""

    steps: list[StepReport]


class Session:
    """Made by `trimtab.attach`; every rank has one."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        group: Group | None,
        plan: Plan,
        recorder: Recorder,
        scheduler: Any = None,
        scheduler_interval: SchedulerInterval = "epoch",
        scale: LossScale | None = None,
        steering: Steering | None = None,
        seed: int = 0,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._scheduler, self._scheduler_interval = scheduler, scheduler_interval
        self._scale = scale or LossScale(None)
        self._group, self._recorder, self._steering, self._seed = group, recorder, steering, seed
        self._exchanger: Exchanger | None = None
        self._arena = Arena(list(model.named_parameters()))
        self._static_plan = plan
        if group is not None:
            self._broadcast_model(group)
            self._exchanger = Exchanger(self._arena, group, plan)
            self._exchanger.gradient_scale = self._scale.factor
            if steering is not None:
                self._exchanger.has_message = lambda: self._trials is None and steering.outbox is not None
        self._outcome: Outcome | None = None
        self._trials: _Trials | None = None
        self._request: tuple[list[Plan], int] | None = None
        self._step = 0
        self._batches_since_step, self._batches_a_step = 0, 1
        self._epoch = 0
        self._loaders = Loaders(self.rank, self.num_ranks, seed)
        self._said_how: set[str] = set()
        self._replay: Replay | None = None
        if group is not None:
            warm_up(self._arena.grad.device)
            first = self._announce()
            if first is not None:
                self._follow(first)
            barrier(group)
        recorder.begin()
        self._step_began = time.perf_counter()

    # What a training script reads ---------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This process, 0 .. `num_ranks` - 1."""
        return self._group.rank if self._group else 0

    @property
    def num_ranks(self) -> int:
        """How many processes train together."""
        return self._group.size if self._group else 1

    @property
    def in_trial(self) -> bool:
        """Whether the present steps belong to a trial: they will be undone, so a user's logging should be quiet."""
        return self._trials is not None

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._exchanger.plan if self._exchanger else self._static_plan

    @property
    def steps(self) -> int:
        """Training steps taken, trials not counted."""
        return self._step

    # The loop -----------------------------------------------------------------------------------------------------

    def batches(self, loader: Iterable[Any], *, sharded: bool = False) -> Iterator[Any]:
        """This rank's share of one epoch of ``loader``; runs trials on the way by replaying batches.

        ``sharded``: ``loader`` holds this rank's share alone, as many batches as on every rank; it is taken as it is.
        """
        share = self._loaders.shard(loader, sharded=sharded)
        source = share.epoch(self._epoch)
        self._say_how(share)
        self._replay = replay = Replay(source, share.num_batches)
        self._epoch += 1  # a loop that is left early has had its epoch: the next one shuffles anew
        try:
            yield from self._epoch_of(replay)
        finally:
            if self._replay is replay:
                self._replay = None

    def _epoch_of(self, replay: Replay) -> Iterator[Any]:
        """Each batch, and before it the trials that were asked for."""
        while True:
            if self._request is not None:
                plans, iterations = self._request
                self._request = None
                yield from self._run_trials(replay, plans, iterations)
            try:
                batch = replay.next()
            except StopIteration:
                return
            self._batches_since_step += 1
            yield batch

    def step(self, loss: Tensor | float | None = None) -> None:
        """Finish the exchange, commit or drop the step, step the optimizer, and let the controller speak.

        ``loss``, where given, is recorded beside the step's times. Afterwards gradients are released, as by
        ``zero_grad(set_to_none=True)``.
        """
        if self._exchanger is None:
            self._step_alone(loss)
            return
        self.synchronize()
        outcome, self._outcome = self._outcome, None
        assert outcome is not None
        if outcome.agreement.finite:
            self._exchanger.commit()
            self._optimizer.step()
        else:
            self._report_non_finite(outcome)
            self._exchanger.drop()
        self._scale.update(outcome.agreement.finite)
        self._arena.release_gradients()
        if self._scheduler is not None and self._scheduler_interval == "step":
            self._scheduler.step()
        self._after_step(outcome, loss)

    def synchronize(self) -> None:
        """Finish the exchange now: every ``grad`` is the mean over ranks, for gradient clipping before `step`."""
        if self._exchanger is not None and self._outcome is None:
            self._outcome = self._exchanger.finish()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only accumulate; the exchange comes with the first one outside."""
        if self._exchanger is None:
            yield
            return
        self._exchanger.enabled = False
        try:
            yield
        finally:
            self._exchanger.enabled = True

    def report(self, **metrics: SupportsFloat) -> None:
        """Record an evaluation (``accuracy=``, ``loss=``), from rank 0; quiet in a trial.

        Raises `UserError` where a value is no number; a tensor or an array of one element is one.
        """
        if self.rank == 0 and not self.in_trial:
            values = {name: _metric(name, value) for name, value in metrics.items()}
            self._recorder.metric({"event": "evaluation", "step": self._step, **values})

    def close(self) -> None:
        """Write out what is pending and leave the group."""
        if self._steering is not None:
            self._steering.close()
        if self._group is not None:
            self._group.close()
        self._recorder.close()

    # After a step -------------------------------------------------------------------------------------------------

    def _step_alone(self, loss: Tensor | float | None) -> None:
        self._scale.step_alone(self._optimizer)
        self._optimizer.zero_grad(set_to_none=True)
        if self._scheduler is not None and self._scheduler_interval == "step":
            self._scheduler.step()
        now = time.perf_counter()
        self._recorder.metric({"step": self._step, "loss": _number(loss), "step_seconds": now - self._step_began})
        self._step += 1
        self._step_began = now

    def _after_step(self, outcome: Outcome, loss: Tensor | float | None) -> None:
        assert self._exchanger is not None
        now = time.perf_counter()
        seconds, self._step_began = now - self._step_began, now
        report = StepReport(
            step=self._step,
            plan=self.plan,
            step_seconds=seconds,
            compute_seconds=seconds - outcome.wait_seconds,
            compress_seconds=outcome.compress_seconds,
            collective_seconds=outcome.collective_seconds,
            num_bytes=outcome.num_bytes,
            num_messages=outcome.num_messages,
            gain=outcome.agreement.gain,
            residual_norm=outcome.residual_norm,
            finite=outcome.agreement.finite,
        )
        self._record(report, loss)
        if self._trials is not None:
            self._trials.steps.append(report)
            return
        self._step += 1
        self._batches_since_step, self._batches_a_step = 0, max(1, self._batches_since_step)
        if outcome.agreement.has_message and (message := self._announce()) is not None:
            self._follow(message)
        if self._steering is not None:
            self._steering.step(report, self._replay.num_left // self._batches_a_step if self._replay else 0)

    def _record(self, report: StepReport, loss: Tensor | float | None) -> None:
        if self.rank != 0:
            return
        view = self._steering.view if self._steering else None
        self._recorder.metric(
            {
                "step": report.step,
                "loss": _number(loss),
                "step_seconds": report.step_seconds,
                "compute_seconds": report.compute_seconds,
                "compress_seconds": report.compress_seconds,
                "collective_seconds": report.collective_seconds,
                "bytes": report.num_bytes,
                "messages": report.num_messages,
                "plan": report.plan.name,
                "plan_version": report.plan.version,
                "gain": report.gain,
                "finite": report.finite,
                "latency": view.latency if view else None,
                "bandwidth": view.bandwidth if view else None,
                "trial": self.in_trial,
            }
        )

    def _announce(self) -> dict[str, Any] | None:
        """Rank 0's message, if it has one, on every rank."""
        message = self._steering.outbox if self._steering is not None else None
        assert self._group is not None
        received: dict[str, Any] | None = broadcast_json(self._group, message)
        if self._steering is not None:
            self._steering.sent()
        return received

    def _follow(self, message: dict[str, Any]) -> None:
        assert self._exchanger is not None
        if "adopt" in message:
            self._exchanger.adopt(plan_of(message))
            self._exchanger.restart(self._step)
        else:
            self._request = trials_of(message)

    # Trials -------------------------------------------------------------------------------------------------------

    def _run_trials(self, replay: Replay, plans: list[Plan], iterations: int) -> Iterator[Any]:
        """Let the user's loop train under each candidate; what was measured is told also where the loop is left."""
        reports: list[TrialReport] = []
        try:
            if 0 < iterations * self._batches_a_step <= replay.num_left:
                yield from self._try_each(replay, plans, iterations, reports)
        finally:
            if self._steering is not None:
                self._steering.trials(reports)

    def _try_each(
        self, replay: Replay, plans: list[Plan], iterations: int, reports: list[TrialReport]
    ) -> Iterator[Any]:
        """Train under each candidate in turn, undoing every one, the one in which the loop is left as well."""
        assert self._exchanger is not None
        before, sparsifiers = self._exchanger.plan, self._exchanger.sparsifiers
        began = time.perf_counter()
        snapshot = self._snapshot()
        for plan in plans:
            trial = self._trials = _Trials([])
            self._exchanger.adopt(plan.with_version(before.version))
            self._exchanger.restart(self._step)
            replay.mark()
            self._step_began = time.perf_counter()
            try:
                while len(trial.steps) < iterations:  # a step may take several batches (`no_sync`)
                    yield replay.next()
            except StopIteration:  # steps take more batches than they did
                break
            finally:
                self._trials = None
                snapshot.restore()
                replay.rewind()
                self._exchanger.forget_sparsifiers_but(sparsifiers)
                self._exchanger.adopt(before)
                self._exchanger.restart(self._step)
                self._step_began = time.perf_counter()
            ended = time.perf_counter()
            reports.append(_summary(plan, trial.steps, ended - began))
            began = ended

    def _snapshot(self) -> Snapshot:
        assert self._exchanger is not None
        exchanger = self._exchanger

        def others() -> list[Stateful]:
            found: list[Stateful] = [*exchanger.selectors, self._scale]
            if self._scheduler is not None:
                found.append(self._scheduler)
            return found

        return Snapshot(TrainingState(self._model, self._optimizer, self._arena, others))

    # Setting up and complaining -----------------------------------------------------------------------------------

    def _broadcast_model(self, group: Group) -> None:
        """Every rank starts from rank 0's weights and buffers."""
        with torch.no_grad():
            for tensor in (*self._model.parameters(), *self._model.buffers()):
                broadcast_tensor(group, tensor)

    def _say_how(self, sharded: Sharded) -> None:
        """What is done with a loader decides what is trained on: rank 0 says it, once."""
        if self.rank == 0 and self.num_ranks > 1 and sharded.how not in self._said_how:
            self._said_how.add(sharded.how)
            print(f"trimtab: loader: {sharded.how}", file=sys.stderr, flush=True)

    def _report_non_finite(self, outcome: Outcome) -> None:
        assert self._exchanger is not None
        if all(e.squared_norm_before - e.squared_norm_before == 0 for e in outcome.exchanged):
            return
        names = self._exchanger.non_finite_parameters()
        print(
            f"rank {self.rank}, step {self._step}: gradient not finite in {', '.join(names[:5]) or 'a sum of squares'}"
            f"{' and others' if len(names) > 5 else ''}; the step is dropped on all ranks",
            flush=True,
        )


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
        gain=median("gain"),
        num_steps=len(steps),
        wall_seconds=wall_seconds,
    )


def _metric(name: str, value: SupportsFloat) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # as text, sequences and tensors of several elements raise
        raise UserError("report one number", field=name, value=str(value)[:80]) from None


def _number(value: Tensor | float | None) -> float | None:
    return float(value.detach()) if isinstance(value, Tensor) else value
