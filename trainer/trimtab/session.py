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
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, SupportsFloat

import torch
from torch import Tensor, nn
from trimtab_api.errors import UserError

from trimtab.arena import Arena
from trimtab.broadcast import barrier, broadcast_json, broadcast_tensor
from trimtab.checkpoint.snapshot import Snapshot, Stateful, TrainingState
from trimtab.collectives.group import Group
from trimtab.control.types import StepReport
from trimtab.control_client import ControlClient, plan_of, trials_of
from trimtab.exchanger import Exchanger
from trimtab.kernels.warm_up import warm_up
from trimtab.loops import Loops
from trimtab.loss_scale import LossScale
from trimtab.outcome import Outcome
from trimtab.plan import Plan
from trimtab.recorder import Recorder
from trimtab.sharding import Loaders
from trimtab.step_number import StepInTrial
from trimtab.trials import TrialRunner

SchedulerInterval = Literal["epoch", "step"]


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
        also: Sequence[Stateful | torch.optim.Optimizer] = (),
        control_client: ControlClient | None = None,
        seed: int = 0,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._scheduler, self._scheduler_interval = scheduler, scheduler_interval
        self._scale, self._also = scale or LossScale(None), tuple(also)
        self._group, self._recorder, self._control_client = group, recorder, control_client
        self._static_plan = plan
        self._exchanger: Exchanger | None = None
        self._trials: TrialRunner | None = None
        self._handles: list[Any] = [optimizer.register_step_pre_hook(self._before_optimizer_step)]
        if group is not None:
            recorder.starting("sending the weights of rank 0 to all ranks")
            self._join(group, plan)
        self._is_stepping = False
        self._step = 0
        self._said: set[str] = set()
        self._loops = Loops(Loaders(self.rank, self.num_ranks, seed), self._say, self._trials_ended)
        self._step_began = time.perf_counter()
        if group is not None:
            recorder.starting("loading kernels, which are compiled the first time that a machine trains")
            warm_up(self._arena.grad.device)
            recorder.starting("waiting for the other ranks to have their kernels ready")
            first = self._announce()
            if first is not None:
                self._follow(first)
            barrier(group)
        recorder.begin()
        self._step_began = time.perf_counter()

    def _join(self, group: Group, plan: Plan) -> None:
        """Take part in the ranks' exchange."""
        self._arena = Arena(list(self._model.named_parameters()))
        self._broadcast(group, (*self._model.parameters(), *self._model.buffers()))
        self._exchanger = exchanger = Exchanger(
            self._arena,
            group,
            plan,
            weights=self._model.parameters,
            loss_scale=self._scale.get,
            before_backward=self._before_backward,
            has_message=self._has_message,
        )
        self._trials = TrialRunner(
            self._model,
            exchanger,
            self._snapshot,
            lambda reports: self._control_client.trials(reports) if self._control_client else None,
        )

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
        return self._trials is not None and self._trials.is_active

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._exchanger.plan if self._exchanger else self._static_plan

    @property
    def steps(self) -> int:
        """Training steps taken, trials not counted. During a trial it equals no number (`StepInTrial`)."""
        return StepInTrial(self._step) if self.in_trial else self._step

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return not self._handles

    # The loop -----------------------------------------------------------------------------------------------------

    def batches(self, loader: Iterable[Any], *, sharded: bool = False) -> Iterator[Any]:
        """This rank's share of one epoch of ``loader``; runs trials on the way by replaying batches.

        ``sharded``: ``loader`` holds this rank's share alone, as many batches as on every rank; it is taken as it is.
        """
        return self._loops.batches(loader, sharded=sharded)

    def step(self, loss: Tensor | float | None = None) -> None:
        """Commit or drop the step, step the optimizer, and let the controller speak.

        ``loss``, where given, is recorded beside the step's times. Afterwards gradients are released, as by
        ``zero_grad(set_to_none=True)``.

        Raises `UserError` for a closure, and after `close`.
        """
        if callable(loss):
            raise UserError("takes the loss, not a closure; call loss.backward() before it", field="session.step")
        if self.is_closed:
            raise UserError("the session is closed", field="session.step")
        if self._exchanger is None:
            self._step_alone(loss)
            return
        self._before_backward()  # of a step without one
        outcome = self._exchanger.finish()
        if outcome.is_finite:
            self._exchanger.commit()
        else:
            self._report_non_finite(outcome)
            self._exchanger.drop()
        scale = self._scale.get()
        if outcome.updates and (outcome.is_finite or scale is not None):
            self._step_optimizer()
        self._arena.release_gradients()
        if outcome.consensus is not None and outcome.consensus.weights == "rounding":
            self._align_weights()
        if self._scheduler is not None and self._scheduler_interval == "step":
            self._scheduler.step()
        self._after_step(outcome, loss, scale)

    def synchronize(self) -> None:
        """Make every ``grad`` what the optimizer will see: the mean over ranks, without the loss scale.

        They are so when ``backward()`` returns, but for a loss scale, and for ranks whose step has no backward pass.
        """
        if self._exchanger is not None:
            self._before_backward()
            self._exchanger.finish()
        self._scale.unscale(self._optimizer)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Backward passes inside only accumulate; the exchange comes with the first one outside."""
        return contextlib.nullcontext() if self._exchanger is None else self._exchanger.no_sync()

    def report(self, **metrics: SupportsFloat) -> None:
        """Record an evaluation (``accuracy=``, ``loss=``), from rank 0; quiet in a trial.

        Raises `UserError` where a value is no number; a tensor or an array of one element is one.
        """
        if self.rank == 0 and (not self.in_trial or (self._trials is not None and self._trials.is_suspended)):
            values = {name: _metric(name, value) for name, value in metrics.items()}
            self._recorder.metric({"event": "evaluation", "step": self._step, **values})

    def close(self) -> None:
        """Undo a trial that was left, write out what is pending, leave the group and let go of the model."""
        if self._trials is not None:
            self._trials.leave()
        self._loops.close()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._exchanger is not None:
            self._exchanger.close()
        if self._control_client is not None:
            self._control_client.close()
        if self._group is not None:
            self._group.close()
        self._recorder.close()

    # Hooks --------------------------------------------------------------------------------------------------------

    def _before_backward(self) -> None:
        assert self._trials is not None
        self._trials.before_backward()
        self._check_all_are_exchanged()

    def _before_optimizer_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not self._is_stepping:
            raise UserError(
                "call session.step(loss) in place of optimizer.step(), and of scaler.step(optimizer)",
                field="optimizer",
            )

    def _check_all_are_exchanged(self) -> None:
        """What an optimizer trains and the exchange does not know of would part between ranks."""
        optimizers = (self._optimizer, *(each for each in self._also if isinstance(each, torch.optim.Optimizer)))
        for parameter in (p for each in optimizers for group in each.param_groups for p in group["params"]):
            if parameter.requires_grad and parameter not in self._arena:
                names = [name for name, each in self._model.named_parameters() if each is parameter]
                raise UserError(
                    "did not require a gradient, or did not exist, when the session was attached, so ranks do not"
                    " exchange it; let it require one before attach and freeze it afterwards, or attach anew",
                    field=f"model parameter {names[0] if names else '(of the optimizer alone)'}",
                )

    # After a step -------------------------------------------------------------------------------------------------

    def _step_optimizer(self) -> None:
        self._is_stepping = True
        try:
            self._scale.step(self._optimizer)
        finally:
            self._is_stepping = False

    def _step_alone(self, loss: Tensor | float | None) -> None:
        self._step_optimizer()
        self._optimizer.zero_grad(set_to_none=True)
        if self._scheduler is not None and self._scheduler_interval == "step":
            self._scheduler.step()
        now = time.perf_counter()
        self._recorder.metric({"step": self._step, "loss": _number(loss), "step_seconds": now - self._step_began})
        self._step += 1
        self._step_began = now

    def _after_step(self, outcome: Outcome, loss: Tensor | float | None, scale: float | None) -> None:
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
            gain=1.0 if self.plan.is_dense else outcome.gain,
            residual_norm=outcome.residual_norm,
            finite=outcome.is_finite,
            loss_scale=scale or 1.0,
        )
        self._record(report, loss)
        self._loops.stepped(in_trial=self.in_trial)
        if self._trials is not None and self._trials.is_active:
            self._trials.observe(report)
            return
        self._step += 1
        consensus = outcome.consensus
        if consensus is not None and consensus.has_message and (message := self._announce()) is not None:
            self._follow(message)
        if self._control_client is not None:
            self._control_client.step(report, self._loops.num_steps_left)

    def _record(self, report: StepReport, loss: Tensor | float | None) -> None:
        if self.rank != 0:
            return
        view = self._control_client.view if self._control_client else None
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
                "network_stale": view.stale if view else None,
                "trial": self.in_trial,
            }
        )

    # Rank 0's messages --------------------------------------------------------------------------------------------

    def _has_message(self) -> bool:
        return (
            self._control_client is not None and not self.in_trial and self._control_client.pending_message is not None
        )

    def _announce(self) -> dict[str, Any] | None:
        """Rank 0's message, if it has one, on every rank."""
        message = self._control_client.pending_message if self._control_client is not None else None
        assert self._group is not None
        received: dict[str, Any] | None = broadcast_json(self._group, message)
        if self._control_client is not None:
            self._control_client.sent()
        return received

    def _follow(self, message: dict[str, Any]) -> None:
        assert self._exchanger is not None
        assert self._trials is not None
        assert self._group is not None
        if "adopt" in message:
            self._exchanger.adopt(plan_of(message))
            self._exchanger.restart(self._step)
        elif self._loops.agree_on_trials(self._group, self._trials, *trials_of(message)):
            self._warn_of_schedulers()
        else:
            self._trials_ended(False)

    def _trials_ended(self, have_begun: bool) -> None:
        """The next step is one of training; trials that were to begin, and did not, are told of."""
        self._step_began = time.perf_counter()
        if not have_begun and self._control_client is not None:
            self._control_client.trials([])

    def _warn_of_schedulers(self) -> None:
        handed_over = any(isinstance(each, torch.optim.lr_scheduler.LRScheduler) for each in self._also)
        if self._scheduler is None and not handed_over and hasattr(self._optimizer.step, "_wrapped_by_lr_sched"):
            self._say(
                "a learning rate scheduler wraps the optimizer, and trials would move it on: hand it to"
                " attach(scheduler=...) or attach(also=[...])"
            )

    def _snapshot(self) -> Snapshot:
        def others() -> list[Stateful | torch.optim.Optimizer]:
            found: list[Stateful | torch.optim.Optimizer] = [
                self._scale,
                self._loops,
                *self._also,
            ]
            if self._scheduler is not None:
                found.append(self._scheduler)
            return found

        return Snapshot(TrainingState(self._model, self._optimizer, self._arena, others))

    # Alike on all ranks -------------------------------------------------------------------------------------------

    def _broadcast(self, group: Group, tensors: Iterable[Tensor]) -> None:
        """Every rank takes over rank 0's."""
        with torch.no_grad():
            for tensor in tensors:
                broadcast_tensor(group, tensor)

    def _align_weights(self) -> None:
        """Unlike processors round unlike; what a hundred steps of that add up to is taken back."""
        assert self._group is not None
        self._say("ranks' weights differ by rounding, as on unlike processors: rank 0's are sent to all now and then")
        self._broadcast(self._group, self._model.parameters())

    def _say(self, what: str) -> None:
        """A line of rank 0's on stderr, once."""
        if self.rank == 0 and self.num_ranks > 1 and what not in self._said:
            self._said.add(what)
            print(f"trimtab: {what}", file=sys.stderr, flush=True)

    def _report_non_finite(self, outcome: Outcome) -> None:
        names = outcome.non_finite
        if names:
            print(
                f"rank {self.rank}, step {self._step}: gradient not finite in {', '.join(names[:5])}"
                f"{' and others' if len(names) > 5 else ''}; the step is dropped on all ranks",
                flush=True,
            )


def _metric(name: str, value: SupportsFloat) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # as text, sequences and tensors of several elements raise
        raise UserError("report one number", field=name, value=str(value)[:80]) from None


def _number(value: Tensor | float | None) -> float | None:
    return float(value.detach()) if isinstance(value, Tensor) else value
