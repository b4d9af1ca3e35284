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
from trimtab.engine.single_process import SingleProcessEngine
from trimtab.engine.step_engine import StepEngine

#: (what came of the exchange; the loss, where it was given; the loss scale of the step).
Stepped = Callable[[Outcome, Tensor | float | None, float | None], None]


class StepLifecycle:
    """Takes the session's steps, or notices that the script takes them; a script does the one or the other."""

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        scale: LossScale,
        make_engine: Callable[[OptimizerStepper], StepEngine | SingleProcessEngine],
        stepped: Stepped,
        *,
        alternating_optimizers: bool = False,
    ) -> None:
        """Watch the optimizers' steps.

        Args:
            optimizers: What the script trains by.
            scale: A GradScaler's, or none.
            make_engine: Makes the engine, which steps the optimizers by what it is given.
            stepped: Is told of each step.
            alternating_optimizers: Each step is one optimizer's, whose gradients alone are exchanged in it.
        """
        self._alternating_optimizers = alternating_optimizers
        self._optimizers, self._scale = optimizers, scale
        self._stepped = stepped
        self.stepper = OptimizerStepper(
            optimizers,
            scale,
            self._before_own,
            self._after_own,
            self._on_step_skipped,
            alternating_optimizers=alternating_optimizers,
        )
        self.engine = make_engine(self.stepper)
        """Carries out the steps."""
        self._by: Literal["session.step", "optimizer.step"] | None = None
        """The function that takes this script's steps; None before the first."""
        self._own: tuple[Outcome, float | None] | None = None
        """Outcome and loss scale of the step that the script is taking."""

    def close(self) -> None:
        """Let go of the optimizers and their scaler."""
        self.stepper.close()

    def step(self, loss: Tensor | float | None) -> None:
        """Take a step; afterwards gradients are released.

        Raises:
            UserError: The script takes its steps by itself, or optimizers alternate.
        """
        if self._alternating_optimizers:
            raise UserError(
                "is not used with alternating optimizers; call the step() of the optimizer", field="session.step"
            )
        self._is_by("session.step")
        scale = self._scale.get()
        self._stepped(self.engine.step(), loss, scale)

    def skip(self) -> None:
        """Throw away what backward passes have left since the last step."""
        if (outcome := self.engine.skip()) is not None:
            self._stepped(outcome, None, None)

    def on_next_batch(self) -> None:
        """Count a backward pass that no step followed, within a round, as a local step: the next batch is asked for."""
        if (outcome := self.engine.leave_step()) is not None:
            self._stepped(outcome, None, None)

    def _before_own(self, optimizer: torch.optim.Optimizer) -> None:
        self._is_by("optimizer.step")
        scale = self._scale.get()
        self._own = self.engine.finalize_gradients(optimizer), scale

    def _after_own(self) -> None:
        assert self._own is not None, "each of the script's steps begins before it ends"
        (outcome, scale), self._own = self._own, None
        self._stepped(self.engine.on_step_end(outcome), None, scale)

    def _on_step_skipped(self) -> None:
        """End or discard the step: the scaler is about to update its scale, and no optimizer has stepped.

        Where gradients are infinite the scaler has left the step out, which ends so. Where they are not, the script has
        not asked for it: it throws the step away.
        """
        if not self.engine.has_begun:
            return
        if self.engine.is_discardable:
            self.skip()
        else:
            self._before_own(self._optimizers[0])
            self._after_own()

    def _is_by(self, by: Literal["session.step", "optimizer.step"]) -> None:
        self._by = self._by or by
        if self._by != by:
            raise UserError(
                f"this script takes its steps by {self._by}(); use one way only: session.step(loss) without"
                " optimizer.step() and scaler.step(optimizer), or those without session.step",
                field=by,
            )
