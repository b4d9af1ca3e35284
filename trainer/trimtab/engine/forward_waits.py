"""What a forward pass waits for, and what it sets going.

Just before a module runs, the optimizer steps those of its parameters whose mean over ranks had not arrived when it
stepped the others. Whoever looks at the weights in another way (a snapshot, ``state_dict``, the next backward pass, a
change of plan) has all of them stepped first. And what waits since an earlier iteration is sent as the pass begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from trimtab.engine.exchanger import Exchanger
from trimtab.engine.module_hook import ModuleHook
from trimtab.engine.optimizer_gate import OptimizerGate
from trimtab.engine.profiler import StepProfiler
from trimtab.engine.stepped_in_parts import why_stepped_whole


class ForwardWaits:
    """Steps late parameters of one model, with the settings that the optimizer had at the step they belong to."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        gate: OptimizerGate,
        exchanger: Exchanger,
        profiler: StepProfiler | None,
        say: Callable[[str], None],
    ) -> None:
        """``profiler`` is told what of a forward pass is waiting, where this rank has one.

        ``say`` is told why nothing may be late, where it may not.
        """
        self._model, self._optimizers, self._gate, self._exchanger = model, optimizers, gate, exchanger
        self._optimizer, self._profiler, self._say = optimizers[0], profiler, say
        exchanger.allows_late = self.allows_late
        self._hooks: list[RemovableHandle] = []
        self._settings: list[dict[str, Any]] = []
        """Of each parameter group, when the others were stepped."""
        self._is_waiting = False
        """Whether the optimizer has stepped the others."""
        self._seen: set[int] = set()
        """Tensors, by index, whose module has been seen to run: only these may wait for it.

        Of others a module may use what it does not own, as attention uses its projection's weight.
        """

    def allows_late(self) -> bool:
        """Whether means may arrive after the optimizer's step, which then becomes several; where not, it is said."""
        why = why_stepped_whole(self._optimizers)
        if isinstance(self._model, torch.jit.ScriptModule):
            why = "a scripted model takes no hooks"
        if why:
            self._say(
                f"{why}, so each step waits for all gradients, also those that may arrive by the next forward pass"
            )
        return not why

    def begin(self) -> None:
        """The optimizer has stepped all but what is late."""
        self._is_waiting = True
        arrivals = self._exchanger.arrivals
        arrivals.when_read = self.settle
        arrivals.show_late()  # until the script clears them
        self._settings = [_settings(group) for group in self._optimizer.param_groups]
        self.watch()

    def close(self) -> None:
        """Let go of the model and the optimizer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def settle(self, tensors: Collection[int] | None = None) -> None:
        """Step what is late of ``tensors``, by index in the arena; of all where it is None."""
        if self._is_waiting and self._exchanger.late(tensors):
            with contextlib.nullcontext() if self._profiler is None else self._profiler.left_out():
                self._settle(tensors)

    def _settle(self, tensors: Collection[int] | None) -> None:
        parameters = self._exchanger.arena.parameters
        gradients = [parameter.grad for parameter in parameters]  # of a backward pass that has just begun
        for parameter in parameters:
            parameter.grad = None
        self._exchanger.arrivals.hand_out_late(tensors)
        self._step()
        for index, gradient in enumerate(gradients):
            parameters[index].grad = self._exchanger.arrivals.as_arrived(index, gradient)
        if not self._exchanger.late():
            self._is_waiting = False
            self._exchanger.commit()

    def _step(self) -> None:
        now = [{name: group[name] for name in group if name != "params"} for group in self._optimizer.param_groups]
        for group, settings in zip(self._optimizer.param_groups, self._settings, strict=False):
            group.update(settings)
        try:
            self._gate.step()
        finally:
            for group, settings in zip(self._optimizer.param_groups, now, strict=True):
                group.update(settings)

    def watch(self) -> None:
        """Hear of forward passes, from now on."""
        if self._hooks:
            return
        indices = {id(parameter): index for index, parameter in enumerate(self._exchanger.arena.parameters)}
        parts = list(self._model.modules())
        if any(isinstance(part, torch.jit.ScriptModule) or type(part).__name__ == "OptimizedModule" for part in parts):
            parts = []  # hooks inside would have it compiled anew, or are refused
        for part in parts:
            own = {indices[id(p)] for p in part.parameters(recurse=False) if id(p) in indices}
            if own and part is not self._model:
                hook = ModuleHook(lambda *_, own=own: self._before_module(own))
                self._hooks.append(part.register_forward_pre_hook(hook))
        self._hooks.append(self._model.register_forward_pre_hook(ModuleHook(self._before_model), prepend=True))
        self._hooks.append(self._model.register_state_dict_pre_hook(ModuleHook(lambda *_: self.settle())))
        self._hooks.append(self._optimizer.register_state_dict_pre_hook(lambda *_: self.settle()))

    def _before_model(self, *_: Any) -> None:
        if self._is_waiting:
            self.settle(set(range(len(self._exchanger.arena.parameters))) - self._seen)
        if self._model.training and torch.is_grad_enabled():
            self._exchanger.begin()

    def _before_module(self, own: set[int]) -> None:
        self._seen |= own
        self.settle(own)


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """All that a parameter group says but its parameters, such as the learning rate."""
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in group.items()
        if name != "params"
    }
