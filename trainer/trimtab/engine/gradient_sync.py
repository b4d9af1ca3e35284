"""Training by gradients: ranks exchange them, and every rank's optimizer makes the same step of their mean."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from trimtab_api.errors import UserError

from trimtab.engine.deferred.forward_hooks import ForwardSyncHooks
from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.engine.optimizer.modes import only_parameters_of
from trimtab.engine.optimizer.partial_steps import PartialSteps
from trimtab.engine.pending_step import PendingStep
from trimtab.engine.profiling.profiler import StepProfiler
from trimtab.engine.sync_mode import SyncMode


class GradientSync(SyncMode):
    """Gradients are exchanged in each backward pass."""

    def __init__(
        self,
        model: nn.Module,
        exchanger: Exchanger,
        pending_step: PendingStep,
        *,
        forward_hooks: ForwardSyncHooks,
        partial_steps: PartialSteps,
        scale: LossScale,
        profiler: StepProfiler | None,
    ) -> None:
        """``forward_hooks`` step what is deferred, where ``partial_steps`` are possible."""
        self._model, self._exchanger, self._pending_step = model, exchanger, pending_step
        self._forward_hooks, self._partial_steps = forward_hooks, partial_steps
        self._scale, self._profiler = scale, profiler

    def before_optimizer(self, optimizer: torch.optim.Optimizer | None) -> Outcome:
        """See `SyncMode.before_optimizer`."""
        return self.finish_exchange()

    def after_optimizer(self, outcome: Outcome) -> Outcome:
        """See `SyncMode.after_optimizer`; what is deferred is stepped in the next forward pass."""
        if self._exchanger.late():
            self._forward_hooks.begin()
        if self._exchanger.dispatcher.can_begin:
            self._forward_hooks.watch()
        return outcome

    def synchronize(self) -> None:
        """See `SyncMode.synchronize`."""
        self._exchanger.finish()
        self._exchanger.arrivals.write_deferred()

    def discard(self) -> None:
        """See `SyncMode.discard`; every rank calls it together."""
        self._pending_step.discard()

    def compared_weights(self) -> Iterable[Tensor]:
        """See `SyncMode.compared_weights`."""
        return self._model.parameters()

    def finish_exchange(self) -> Outcome:
        """Wait for the exchange, and commit or drop it; where gradients are deferred it is committed with the last."""
        outcome = self._exchanger.finish()
        if self._exchanger.late() and not self._partial_steps.are_possible():  # by a hook of since the backward pass
            self._exchanger.arrivals.write_deferred()
        self._exchanger.arrivals.defer()
        is_whole = self._exchanger.plan.is_dense and not self._exchanger.late()
        if self._profiler is not None and self._profiler.is_profiling and is_whole:
            self._profiler.exchanged(self._exchanger.flat_buffers.grad, self._scale.get())
        if not outcome.is_finite:
            self._exchanger.drop()
        elif not self._exchanger.late():
            self._exchanger.commit()
        return outcome


class AlternatingOptimizers(GradientSync):
    """Gradients are exchanged when one of several optimizers steps, and only those of its parameters."""

    def before_optimizer(self, optimizer: torch.optim.Optimizer | None) -> Outcome:
        """See `SyncMode.before_optimizer`."""
        if optimizer is None:
            return self.finish_exchange()
        with only_parameters_of(optimizer, self._exchanger.flat_buffers):
            return self.finish_exchange()

    def synchronize(self) -> None:
        """Raise `UserError`: before an optimizer steps, nobody knows which gradients count."""
        raise UserError(
            "is not used with alternating optimizers, whose step() exchanges gradients; remove the call",
            field="session.synchronize",
        )
