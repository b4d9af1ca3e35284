"""A step, whoever takes it: `Session.step`, or the script's own ``optimizer.step()`` or ``scaler.step(optimizer)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from trimtab_api.errors import UserError

from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.engine.optimizer.stepper import OptimizerStepper
from trimtab.engine.step_engine import StepEngine

#: (what came of the exchange, None where there is none; the loss, where it was given; the loss scale of the step).
Stepped = Callable[[Outcome | None, Tensor | float | None, float | None], None]


class StepLifecycle:
    """Takes the session's steps, or notices that the script takes them; a script does the one or the other."""

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        scale: LossScale,
        engine: Callable[[], StepEngine | None],
        stepped: Stepped,
        *,
        alternating_optimizers: bool = False,
    ) -> None:
        """Watch the optimizers' steps.

        Args:
            optimizers: What the script trains by.
            scale: A GradScaler's, or none.
            engine: Returns the engine; None where nothing is exchanged.
            stepped: Is told of each step.
            alternating_optimizers: Each step is one optimizer's, whose gradients alone are exchanged in it.
        """
        self._alternating_optimizers = alternating_optimizers
        self._optimizers, self._scale = optimizers, scale
        self._engine, self._stepped = engine, stepped
        self.stepper = OptimizerStepper(
            optimizers,
            scale,
            self._before_own,
            self._after_own,
            self._on_step_skipped,
            alternating_optimizers=alternating_optimizers,
        )
        self._by: Literal["session.step", "optimizer.step"] | None = None
        """The function that takes this script's steps; None before the first."""
        self._own: tuple[float | None, Outcome | None] = None, None
        """Loss scale and outcome of the step that the script is taking."""

    def close(self) -> None:
        """Let go of the optimizers and their scaler."""
        self.stepper.close()

    def step(self, loss: Tensor | float | None) -> None:
        """Take a step; afterwards gradients are released.

        Raises:
            UserError: The script takes its steps by itself, or optimizers alternate.
        """
        if self._alternating_optimizers:
            raise UserError("which optimizer's turn it is, its own step() says; call that", field="session.step")
        self._is_by("session.step")
        scale, engine = self._scale.get(), self._engine()
        if engine is not None:
            self._stepped(engine.step(), loss, scale)
            return
        self.stepper.step()
        for each in self._optimizers:
            each.zero_grad(set_to_none=True)
        self._stepped(None, loss, scale)

    def skip(self) -> None:
        """Throw away what backward passes have left since the last step."""
        engine = self._engine()
        if engine is None:
            for each in self._optimizers:
                each.zero_grad(set_to_none=True)
            return
        engine.discard()
        if engine.local is not None:
            self._stepped(self._end_local_step(engine), None, None)

    def on_next_batch(self) -> None:
        """Count a backward pass that no step followed, within a round, as a local step: the next batch is asked for.

        Each rank judges by its own gradients there, and rounds must end together.
        """
        engine = self._engine()
        if engine is not None and engine.local is not None and engine.pending_step.is_pending:
            engine.pending_step.check_weights()
            outcome = self._end_local_step(engine)
            engine.pending_step.leave()
            self._stepped(outcome, None, None)

    def _end_local_step(self, engine: StepEngine) -> Outcome:
        """Count a step that was thrown away; the script's gradients, if it has left any, stay as they are."""
        parameters = engine.flat_buffers.parameters
        kept = [engine.flat_buffers.kept(parameter.grad) for parameter in parameters]
        outcome = engine.on_step_end(Outcome.of_local_step(()))
        for parameter, grad in zip(parameters, kept, strict=True):
            parameter.grad = grad
        return outcome

    def _before_own(self, optimizer: torch.optim.Optimizer) -> None:
        self._is_by("optimizer.step")
        engine = self._engine()
        self._own = self._scale.get(), None if engine is None else engine.finalize_gradients(optimizer)

    def _after_own(self) -> None:
        (scale, outcome), self._own = self._own, (None, None)
        engine = self._engine()
        if engine is not None and outcome is not None:
            outcome = engine.on_step_end(outcome)
        self._stepped(outcome, None, scale)

    def _on_step_skipped(self) -> None:
        """End or discard the step: the scaler is about to update its scale, and no optimizer has stepped.

        Where gradients are infinite the scaler has left the step out, which ends so. Where they are not, the script has
        not asked for it: it throws the step away.
        """
        engine = self._engine()
        if engine is None or not engine.pending_step.has_begun:
            return
        outcome = engine.exchanger.outcome
        if engine.local is None and outcome is not None and outcome.is_finite:
            self.skip()
        else:
            self._before_own(self._optimizers[0])
            self._after_own()

    def _is_by(self, by: Literal["session.step", "optimizer.step"]) -> None:
        self._by = self._by or by
        if self._by != by:
            raise UserError(
                f"this script's steps are taken by {self._by}(); call session.step(loss) in place of optimizer.step()"
                " and scaler.step(optimizer), or leave it out: the optimizer's step is the session's",
                field=by,
            )
