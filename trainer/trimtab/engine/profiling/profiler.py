"""Profiled steps: what backward takes tensor by tensor, forward module by module, and the exchange bucket by bucket.

A few steps now and then are profiled, of rank 0 alone. On a GPU each reading waits for the device, so profiled steps
hide less than others do.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from trimtab_api.catalogue import schedules

from trimtab import kernels
from trimtab.engine.deferred.lazy_parameters import as_they_are
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.gradients.uncompiled_hook import ModuleHook, has_scripted_part, is_compiled
from trimtab.engine.profiling.loss_monitor import DelayWatch, LossFall
from trimtab.engine.profiling.profiled_steps import ProfiledStep, bucket_times, gradient_variance
from trimtab.engine.profiling.trace import Span, TracedStep
from trimtab.plan.plan import Plan
from trimtab.plan.profile import ModuleTimes, Profile

#: Steps under a plan before the first that is profiled: thresholds and memory have settled by then.
NUM_SETTLING = 3
#: Steps of a profile.
NUM_STEPS = 5
#: Steps under a plan from one profile to the next; and where updates may be delayed, which the loss has to bear.
STEPS_BETWEEN, STEPS_BETWEEN_DELAYED = 500, 25


class StepProfiler:
    """Measures the profiled steps of one model; other steps are as without it."""

    def __init__(self, model: nn.Module, flat_buffers: FlatBuffers) -> None:
        self._model, self._flat_buffers = model, flat_buffers
        self._device = flat_buffers.grad.device
        self._indices = {id(parameter): index for index, parameter in enumerate(flat_buffers.parameters)}
        self._hooks: list[RemovableHandle] = []
        self._variance: tuple[float, float] | None = None
        """Squared norm of the mean gradient and variance over ranks, where they were last known."""
        self._losses, self._delay = LossFall(), DelayWatch()
        self._last: Profile | None = None
        self._traced: list[TracedStep] = []
        self.restart()

    def restart(self) -> None:
        """Begin anew: the plan has changed, or steps come between that are none of training."""
        self._num_steps = 0
        self._steps: list[ProfiledStep] = []
        self._end()

    @property
    def is_profiling(self) -> bool:
        """True if the present step is profiled."""
        return bool(self._hooks)

    # What happens in a profiled step ------------------------------------------------------------------------------

    def watched(self, on_gradient: Callable[[int], None]) -> Callable[[int], None]:
        """Return ``on_gradient`` with the time of each gradient noted, but for what ``on_gradient`` itself takes."""

        def on_watched_gradient(index: int) -> None:
            if not self.is_profiling:
                on_gradient(index)
                return
            self._gradient_complete(index)
            on_gradient(index)
            self._mark = time.perf_counter()

        return on_watched_gradient

    def _gradient_complete(self, index: int) -> None:
        now, step = self._now(), self._step
        if index in step.tensors:  # of another backward pass of the same step: the last one counts
            step.tensors.clear()
        if not step.tensors:
            step.lead = self._mark - self._began - step.left_out
        step.tensors[index] = now - self._mark
        step.completed[index] = now
        step.spans.append(Span("computing", "BACKWARD", self._flat_buffers.names[index], self._mark, now))

    def exchanged(self, mean: Tensor, loss_scale: float | None) -> None:
        """Note the squared norm of ``mean``: the mean gradient over ranks (float32 [n]), times ``loss_scale``."""
        self._step.squared_mean = kernels.squared_norm(mean) / (loss_scale or 1.0) ** 2

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave what goes on inside, before or in a forward pass, out of the model's computing time."""
        if not self.is_profiling:
            yield
            return
        began = self._now()
        yield
        ended = self._now()
        self._mark += ended - began
        self._step.left_out += ended - began
        self._step.spans.append(Span("computing", "WAIT_FOR_DATA", "late buffers", began, ended))

    def _on_forward_begin(self, *_: Any) -> None:
        if not self._is_in_backward:
            self._mark = self._now()

    def _on_module_end(self, name: str) -> None:
        if not self._is_in_backward:  # where a checkpoint runs it again
            now = self._now()
            self._step.modules[name] = self._step.modules.get(name, 0.0) + now - self._mark
            self._step.spans.append(Span("computing", "FORWARD", name, self._mark, now))
            self._mark = now

    @property
    def _is_in_backward(self) -> bool:
        return torch._C._current_graph_task_id() != -1

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    # From step to step --------------------------------------------------------------------------------------------

    def stepped(
        self, number: int, plan: Plan, outcome: Outcome, loss: float | None, learning_rate: float | None = None
    ) -> Profile | None:
        """Count step ``number`` of training as over; return the profile if the step was the last of one.

        Where its loss shows that late updates do harm, the last profile says so at once.
        """
        profile = None
        told = loss if outcome.consensus is None or outcome.consensus.loss is None else outcome.consensus.loss
        self._losses.add(told)
        if self._delay.add(told, is_delayed=plan.updates_come_late) and self._last is not None:
            harmed_at = learning_rate or 0.0
            profile = replace(self._last, step=number, learning_rate=learning_rate, delay_harmed_at=harmed_at)
        if self.is_profiling:
            self._keep(plan, outcome, loss)
            self._trace(number, plan, outcome)
            if len(self._steps) == NUM_STEPS:
                self._end()
                profile = self._last = self._profile(number, plan, learning_rate)
                self._steps = []
        self._num_steps += 1
        between = STEPS_BETWEEN_DELAYED if schedules[plan.schedule].delays_updates else STEPS_BETWEEN
        if self._num_steps % between == NUM_SETTLING:
            self._begin()
        if self.is_profiling:
            self._step = ProfiledStep()
            self._began = self._mark = self._now()
        return profile

    def _keep(self, plan: Plan, outcome: Outcome, loss: float | None) -> None:
        step = self._step
        step.loss = loss
        step.buckets = {
            pending_exchange.send.bucket: (each.compress_seconds, each.collective_seconds)
            for pending_exchange, each in zip(outcome.arrived, outcome.exchanged, strict=True)
        }
        if not plan.is_dense or plan.local_steps or not outcome.is_finite or not outcome.updates:
            step.squared_mean = None
        if plan.updates_come_late:  # what is exchanged in an iteration is no rank's gradient
            timetable = plan.timetable
            if step.squared_mean is not None and timetable is not None and not timetable.averages:
                step.squared_mean /= timetable.iterations_per_update**2
        elif self._steps and outcome.consensus is not None and plan.is_dense and not plan.local_steps:
            self._steps[-1].mean_squared = outcome.consensus.mean_squared_norm
        self._steps.append(step)

    def _trace(self, number: int, plan: Plan, outcome: Outcome) -> None:
        step = self._step
        self._traced.append(
            TracedStep(number, plan, self._began, time.perf_counter(), step.spans, step.completed, outcome.sent)
        )

    def drain_traces(self) -> list[dict[str, Any]]:
        """Return lines of ``trace.jsonl`` since the last call, of steps of which all that was sent has arrived."""
        lines = []
        while self._traced and self._traced[0].sent.are_over:
            lines.append(self._traced.pop(0).line(self._flat_buffers.names))
        return lines

    def _begin(self) -> None:
        """Watch forward passes."""
        parts = list(self._model.named_modules())
        if has_scripted_part(self._model) or any(is_compiled(part) for _, part in parts):
            parts = []  # hooks inside would have it compiled anew, or are refused
        self._hooks = [
            self._model.register_forward_pre_hook(ModuleHook(self._on_forward_begin)),
            self._model.register_forward_hook(ModuleHook(self._on_forward_begin)),
            *(
                module.register_forward_hook(ModuleHook(lambda *_, name=name: self._on_module_end(name)))
                for name, module in parts
                if self._range(module) is not None
            ),
        ]

    def _end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # The profile --------------------------------------------------------------------------------------------------

    def _profile(self, number: int, plan: Plan, learning_rate: float | None) -> Profile | None:
        """Return the profile of the kept steps; None if there was no backward pass."""
        steps = self._steps
        tensors = tuple(
            median(step.tensors.get(index, 0.0) for step in steps)
            for index in range(len(self._flat_buffers.parameters))
        )
        if sum(tensors) <= 0:
            return None
        losses = [step.loss for step in steps if step.loss is not None]
        self._variance = gradient_variance(steps, self._variance)
        squared_norm, variance = self._variance or (None, None)
        return Profile(
            step=number,
            num_steps=len(steps),
            plan=plan,
            lead_seconds=median(step.lead for step in steps),
            tensor_backward_seconds=tensors,
            modules=tuple(self._modules(tensors)),
            buckets=bucket_times([step.buckets for step in steps]),
            loss=fmean(losses) if losses else None,
            squared_gradient_norm=squared_norm,
            gradient_variance=variance,
            learning_rate=learning_rate,
            loss_fall=self._losses.until(number),
        )

    def _modules(self, tensors: Sequence[float]) -> list[ModuleTimes]:
        """Return the times of the first step's modules, in the order in which they ran."""
        times = []
        for name in self._steps[0].modules:
            first, last = self._range(self._model.get_submodule(name)) or (0, 0)
            times.append(
                ModuleTimes(
                    name,
                    self._flat_buffers.offsets[first],
                    self._flat_buffers.offsets[last],
                    median(step.modules.get(name, 0.0) for step in self._steps),
                    sum(tensors[first:last]),
                )
            )
        return times

    def _range(self, module: nn.Module) -> tuple[int, int] | None:
        """Return the module's own tensors: index of the first, and one past the last; None if it has none."""
        own = [self._indices[id(p)] for p in as_they_are(module).values() if id(p) in self._indices]
        return (min(own), max(own) + 1) if own else None
