"""The optimizers, whose steps are the session's step, whoever takes them: the session, the script, or a GradScaler.

Of several optimizers each steps once: the session's step begins with the first of them and ends with the last. Where
they take turns, each of their steps is one of the session's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from trimtab_api.errors import UserError

from trimtab.engine.optimizer.loss_scale import LossScale, is_scaler_stepping, watch_scalers
from trimtab.engine.phase_timer import PhaseTimer
from trimtab.engine.step_state import StepEvent, StepProgress, StepState


def as_list(
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
) -> list[torch.optim.Optimizer]:
    """Return the optimizers as a list; a wrapper that takes no hooks, such as accelerate's, becomes what it wraps.

    Raises:
        UserError: Something is no optimizer, and wraps none.
    """
    return [_that_takes_hooks(each) for each in (optimizer if isinstance(optimizer, Sequence) else [optimizer])]


def _that_takes_hooks(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    while not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        inner = getattr(optimizer, "optimizer", None)
        if inner is None:
            raise UserError(
                "is no torch.optim.Optimizer; attach the one that it wraps",
                field="optimizer",
                value=type(optimizer).__name__,
            )
        optimizer = inner
    return optimizer


class OptimizerStepper:
    """Steps the optimizers, by their GradScaler where they have one, and tells of the steps that others take."""

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        scale: LossScale,
        before_own: Callable[[torch.optim.Optimizer], None],
        after_own: Callable[[], None],
        left_out: Callable[[], None],
        *,
        alternating_optimizers: bool = False,
    ) -> None:
        """Watch the optimizers' steps, and their scaler's updates.

        Args:
            optimizers: Whose steps are the session's.
            scale: Their GradScaler's, or none.
            before_own: Called before each step that the script takes by itself, with the optimizer that steps first.
            after_own: Called after each such step.
            left_out: Called before the script's GradScaler updates its scale: the scaler may have skipped the step.
            alternating_optimizers: Each optimizer's step is one of the session's.
        """
        self._optimizers, self._scale = tuple(optimizers), scale
        self._before_own, self._after_own, self._on_step_skipped = before_own, after_own, left_out
        self.alternating_optimizers = alternating_optimizers
        self.phases = PhaseTimer()
        """Timer of the steps that these optimizers take."""
        self._phase_around = self.phases.phase
        """Phase around the optimizer's step that is under way."""
        self._num_a_step = 1 if alternating_optimizers else len(self._optimizers)
        self._is_stepping = False
        self._have_stepped: list[torch.optim.Optimizer] = []
        """In the script's own step that is under way."""
        self.progress = StepProgress()
        """State of the present step."""
        self._depth: dict[int, int] = {}
        """By the id of an optimizer: how many of its ``step`` methods are under way, each within the one before.

        torch wraps ``step`` of each class whose instances were made. So where a subclass's calls its parent's, and some
        other optimizer was made of the parent, hooks are called around both.
        """
        if not scale.is_scaling:
            watch_scalers()
        scale.watch(self._before_update)
        self._handles = [each.register_step_pre_hook(self._before_step) for each in self._optimizers]
        self._handles += [each.register_step_post_hook(self._after_step) for each in self._optimizers]

    @property
    def _is_stepped_by_script(self) -> bool:
        return self.progress.state is StepState.STEPPING

    def close(self) -> None:
        """Let go of the optimizer and its scaler."""
        self._scale.release()
        for handle in self._handles:
            handle.remove()

    def step(self) -> None:
        """Step all, unless their scaler finds a gradient that is not finite."""
        self._is_stepping = True
        try:
            self._scale.step(self._optimizers)
        finally:
            self._is_stepping = False

    def skip_step(self) -> None:
        """Skip the step: the next step's gradients have their scale anew."""
        self._is_stepping = True
        try:
            self._scale.skip_step()
        finally:
            self._is_stepping = False

    def step_unscaled(self) -> None:
        """Step all on gradients that carry no loss scale, also within a step that a GradScaler takes."""
        self._is_stepping = True
        try:
            for each in self._optimizers:
                with _without_scaler_s_word(each):
                    each.step()
        finally:
            self._is_stepping = False

    def check_all_have_stepped(self) -> None:
        """Raise `UserError` if the script has stepped some of the optimizers, and not the others.

        Called where a backward pass begins, when no step is under way: one that raised has ended as well.
        """
        self._depth.clear()
        if self._is_stepped_by_script:
            missing = [type(each).__name__ for each in self._optimizers if not _is_in(each, self._have_stepped)]
            raise UserError(
                "did not step after the last backward pass, but other optimizers did; step each optimizer"
                " once in each step, or attach one session to the parameters that step together",
                field="optimizer",
                value=", ".join(missing),
            )

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Begin a step, as torch calls this hook; return what replaces the arguments of ``step``, or None."""
        if self._depth.get(id(optimizer), 0) and _has_several_steps(optimizer):
            self._depth[id(optimizer)] += 1
            return None
        replaced = self._begin_step(optimizer, args, kwargs)
        self._depth[id(optimizer)] = 1
        return replaced

    def _begin_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self._is_stepping:
            self._enter_optimizer()
            return None
        if not self._scale.is_scaling and is_scaler_stepping():
            raise UserError(
                "is stepped by a GradScaler that the session does not know; pass it to the session, which"
                " keeps residuals free of its scale: attach(..., scaler=scaler)",
                field="optimizer",
            )
        evaluated = _with_closure_evaluated(optimizer, args, kwargs)
        if not self._is_stepped_by_script:
            self._before_own(optimizer)
            self.progress.on(StepEvent.FIRST_OPTIMIZER)
        elif _is_in(optimizer, self._have_stepped):
            self.check_all_have_stepped()
        self._enter_optimizer()
        return evaluated

    def _enter_optimizer(self) -> None:
        self._phase_around = self.phases.phase
        self.phases.enter("optimizer")

    def _before_update(self) -> None:
        if self._is_stepping:
            return
        if self._is_stepped_by_script:  # the scaler has left out those that have not stepped
            self._end_own()
        else:
            with self._scale.before_update():
                self._on_step_skipped()

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth[id(optimizer)] = self._depth.get(id(optimizer), 1) - 1
        if self._depth[id(optimizer)]:
            return
        self.phases.enter(self._phase_around)
        if self._is_stepping:
            return
        self._have_stepped.append(optimizer)
        if len(self._have_stepped) == self._num_a_step:
            self._end_own()

    def _end_own(self) -> None:
        self._have_stepped = []
        self.progress.on(StepEvent.LAST_OPTIMIZER)
        with self._scale.before_update():
            self._after_own()


@contextlib.contextmanager
def _without_scaler_s_word(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Hide what a GradScaler has told a fused optimizer of the gradients of its own step, which is under way."""
    held = {name: value for name, value in vars(optimizer).items() if name in ("grad_scale", "found_inf")}
    for name in held:
        delattr(optimizer, name)
    try:
        yield
    finally:
        vars(optimizer).update(held)


def _is_in(optimizer: torch.optim.Optimizer, some: Sequence[torch.optim.Optimizer]) -> bool:
    return any(each is optimizer for each in some)


def _with_closure_evaluated(
    optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return a step's arguments with what a closure among them returned in its place; None without a closure.

    torch's own optimizers (but LBFGS, which `attach` refuses) evaluate it once, before all else. Others may do so in
    the midst of their step, as SAM does, where its backward pass would be exchanged a second time.

    Raises:
        UserError: The optimizer is not one of torch's own, and got a closure.
    """
    if not any(callable(each) for each in (*args, *kwargs.values())):
        return None
    if not type(optimizer).__module__.startswith("torch.optim."):
        raise UserError(
            "may evaluate its closure in the midst of the step, where a backward pass cannot be exchanged; call"
            " loss.backward() first, and step() without it",
            field="optimizer.step",
            value=type(optimizer).__name__,
        )

    def evaluate(value: Any) -> Any:
        if not callable(value):
            return value
        with torch.enable_grad():
            loss = value()
        return lambda: loss

    return tuple(map(evaluate, args)), {name: evaluate(value) for name, value in kwargs.items()}


def _has_several_steps(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a step of the optimizer may be within another of its own: torch marks each ``step`` with hooks."""
    own = (vars(kind).get("step") for kind in type(optimizer).__mro__)
    return sum(hasattr(step, "hooked") for step in own) > 1


def warning_of_scheduler(optimizers: Sequence[torch.optim.Optimizer], extra_state: Sequence[Any]) -> str:
    """Return what to say of a learning rate scheduler that wraps an optimizer and was not handed over; else nothing."""
    handed_over = any(isinstance(each, torch.optim.lr_scheduler.LRScheduler) for each in extra_state)
    if handed_over or not any(hasattr(each.step, "_wrapped_by_lr_sched") for each in optimizers):
        return ""
    return (
        "a learning rate scheduler wraps the optimizer, and trials would move it on: hand it to attach(scheduler=...)"
        " or attach(extra_state=[...])"
    )
