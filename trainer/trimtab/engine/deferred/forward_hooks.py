"""What a forward pass waits for, and what it sets going.

Just before a module runs, the optimizer steps those of its parameters whose mean over ranks had not arrived when it
stepped the others. Whoever takes a weight from the model in another way, before its module runs or outside of a forward
pass, has it stepped first as well (`LazyParameters`), and so has whoever looks at the optimizer's state, the next
backward pass and a change of plan. And what waits since an earlier iteration is sent as the pass begins.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from trimtab_api.errors import UserError

from trimtab.engine.deferred.lazy_parameters import LazyParameters, as_they_are
from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.gradients.uncompiled_hook import ModuleHook, hookable_parts, is_compiled
from trimtab.engine.optimizer.stepper import OptimizerStepper


class ProfilesForward(Protocol):
    """Profiles forward passes."""

    def left_out(self) -> contextlib.AbstractContextManager[None]:
        """Leave what is done inside out of the pass's time."""


class ForwardSyncHooks:
    """Steps late parameters of one model, with the settings that the optimizer had at the step they belong to."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        stepper: OptimizerStepper,
        exchanger: Exchanger,
        profiler: ProfilesForward | None,
    ) -> None:
        """``profiler`` is told what of a forward pass is waiting, where this rank has one."""
        self._model, self._optimizers, self._stepper, self._exchanger = model, optimizers, stepper, exchanger
        self._optimizer, self._profiler = optimizers[0], profiler
        self._hooks: list[RemovableHandle] = []
        self._settings: list[dict[str, Any]] = []
        """Settings of each parameter group, when the other parameters were stepped."""
        self._is_waiting = False
        """True if the optimizer has stepped all parameters but late ones."""
        self._seen: set[int] = set()
        """Tensors, by index, whose module has been seen to run: only these may wait for it.

        Others may be used by somebody who has kept them from before, as recurrent layers do.
        """
        self._versions: dict[int, int] = {}
        """By late tensor: of the parameter, as torch counts its changes, when the others were stepped."""
        self._late_parameters: list[LazyParameters] = []
        """Parameters of modules that own a late tensor, or did at this step: a loop must not lose them."""

    def begin(self) -> None:
        """Watch for uses of late parameters, once the optimizer has stepped all others."""
        self._is_waiting = True
        arrivals = self._exchanger.arrivals
        arrivals.on_read(self.settle)
        arrivals.install_placeholder()  # until the script clears them
        self._settings = [_settings(group) for group in self._optimizer.param_groups]
        late = {
            index
            for pending_exchange in self._exchanger.late()
            for index in range(pending_exchange.span.first, pending_exchange.span.last)
        }
        parameters = self._exchanger.flat_buffers.parameters
        self._versions = {index: parameters[index]._version for index in late}
        numbers = {id(parameters[index]): index for index in late}
        self.watch()
        self._late_parameters = []
        for part in self._model.modules():
            if own := {name: numbers[id(p)] for name, p in as_they_are(part).items() if id(p) in numbers}:
                self._late_parameters.append(LazyParameters(part, own, self.settle))

    def close(self) -> None:
        """Let go of the model and the optimizer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        for each in self._late_parameters:  # where the session ends with an exchange that never does
            each.remove()

    def settle(self, tensors: Collection[int] | None = None) -> None:
        """Step what is late of ``tensors``, by index in the flat buffers (None: of all)."""
        if self._is_waiting and self._exchanger.late(tensors):
            with _as_between_steps(self._exchanger.flat_buffers.device), self._left_out_of_profiles():
                self._settle(tensors)

    def _left_out_of_profiles(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._profiler is None else self._profiler.left_out()

    def _settle(self, tensors: Collection[int] | None) -> None:
        parameters, arrivals = self._exchanger.flat_buffers.parameters, self._exchanger.arrivals
        gradients = [parameter.grad for parameter in parameters]  # of a backward pass that has just begun
        for parameter in parameters:
            parameter.grad = None
        arrivals.write_deferred(tensors)
        self._check_unchanged()
        self._step()
        for index, gradient in enumerate(gradients):
            parameters[index].grad = arrivals.resolve(index, gradient)
        if not self._exchanger.late():
            self._is_waiting = False
            for each in self._late_parameters:
                each.remove()
            self._exchanger.commit()

    def _check_unchanged(self) -> None:
        """Raise `UserError` if the script has changed a weight that is to be stepped only now.

        It has done so past the model, as by a list of parameters from before: what is taken from it is stepped first.
        """
        flat_buffers = self._exchanger.flat_buffers
        for index in [index for index in self._versions if not self._exchanger.late({index})]:
            if self._versions.pop(index) != flat_buffers.parameters[index]._version:
                raise UserError(
                    "was modified while its update was still pending, which the plan's schedule allows until the"
                    " next forward pass; read parameters through model.parameters() before each change, which"
                    " waits for their updates",
                    field=f"model parameter {flat_buffers.names[index]}",
                )

    def _step(self) -> None:
        now = [{name: group[name] for name in group if name != "params"} for group in self._optimizer.param_groups]
        for group, settings in zip(self._optimizer.param_groups, self._settings, strict=False):
            group.update(settings)
        try:
            self._stepper.step()
        finally:
            for group, settings in zip(self._optimizer.param_groups, now, strict=True):
                group.update(settings)

    def watch(self) -> None:
        """Watch forward passes from now on."""
        if self._hooks:
            return
        indices = {id(parameter): index for index, parameter in enumerate(self._exchanger.flat_buffers.parameters)}
        for part in hookable_parts(self._model):
            own = {indices[id(p)] for p in part.parameters(recurse=is_compiled(part)) if id(p) in indices}
            if own and part is not self._model:
                hook = ModuleHook(lambda *_, own=own: self._before_module(own))
                # Before hooks of the script's, which may use weights that they have kept.
                self._hooks.append(part.register_forward_pre_hook(hook, prepend=True))
        self._hooks.append(self._model.register_forward_pre_hook(ModuleHook(self._before_model), prepend=True))
        self._hooks.append(self._optimizer.register_state_dict_pre_hook(lambda *_: self.settle()))

    def _before_model(self, *_: Any) -> None:
        if self._is_waiting:
            is_whole = _is_within_compiled()  # whose code takes weights without asking
            self.settle(None if is_whole else set(range(len(self._exchanger.flat_buffers.parameters))) - self._seen)
        if self._model.training and torch.is_grad_enabled():
            self._exchanger.begin()

    def _before_module(self, own: set[int]) -> None:
        self._seen |= own
        self.settle(own)


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """Return all settings of a parameter group but its parameters, such as the learning rate."""
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in group.items()
        if name != "params"
    }


def _is_within_compiled() -> bool:
    """Return whether the model that calls this as its hook is called by what `torch.compile` has made."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    frame = sys._getframe() if compiler is not None else None
    is_above_hook = False  # which the compiler may have wrapped as well
    while frame is not None:
        if is_above_hook and frame.f_code.co_filename == compiler.__file__:  # type: ignore[union-attr]
            return True
        is_above_hook = is_above_hook or frame.f_code.co_filename == ModuleHook.__call__.__code__.co_filename
        frame = frame.f_back
    return False


@contextlib.contextmanager
def _as_between_steps(device: torch.device) -> Iterator[None]:
    """Have weights, inside, stepped as outside of a forward pass: without inference mode and autocast."""
    with torch.inference_mode(False), torch.autocast(device.type, enabled=False):
        yield
