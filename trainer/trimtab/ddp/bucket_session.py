"""The session behind `trimtab.hook`: DDP gathers gradients in its buckets, and finds their means over ranks there.

DDP's buckets only bring the gradients: what crosses the network together, and when, is the plan's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import Parameter
from trimtab_api.errors import UserError

from trimtab.engine.exchange.proxy_parameters import ProxyParameters
from trimtab.engine.step_engine import StepEngine
from trimtab.session.session import Session


class BucketSession(Session):
    """A session of `ProxyParameters`; in each iteration `take` is called for all gradients, and then `give_back`."""

    skips_unused = False
    """True if DDP leaves the ``grad`` of parameters that no rank has used as it is, whatever their bucket holds."""

    def take(self, parameters: Sequence[Parameter], gradients: Sequence[Tensor]) -> None:
        """Send what these complete gradients of this rank make ready.

        Args:
            parameters: Parameters of the wrapped model.
            gradients: The gradient of each parameter, float32; nobody may change it until `give_back`.

        Raises:
            UserError: A parameter belongs to another model.
        """
        if not isinstance(self._engine, StepEngine):
            return
        for parameter, gradient in zip(parameters, gradients, strict=True):
            model = self._training.model
            assert isinstance(model, ProxyParameters)
            proxy = model.of(parameter)
            if proxy is None:
                raise UserError(
                    "exchanges for one model, and got a gradient of another; give each its own trimtab.HookState, and"
                    " close() that of the one before the next begins to train",
                    field="trimtab.hook",
                )
            is_unused = self.skips_unused and not bool(gradient.any())
            proxy.grad = None if is_unused else gradient
            index = self._indices[id(proxy)]
            self._taken.append((index, gradient))
            self._engine.exchanger.passes.tell(index)

    def give_back(self) -> None:
        """Finish the exchange, make each gradient that was taken the mean over ranks, and take the step.

        Where any rank's are not finite, all are infinite on all ranks, for every rank's GradScaler to see.
        """
        if isinstance(self._engine, StepEngine):
            self._engine.exchanger.passes.end()
            outcome = self._engine.exchanger.outcome
            assert outcome is not None, "the end of a pass has finished its exchange"
            gradients = [gradient for _, gradient in self._taken]
            if outcome.is_finite:
                self._hold_back_unused(self._engine)
                torch._foreach_copy_(gradients, [self._engine.flat_buffers.views[index] for index, _ in self._taken])
            else:
                for gradient in gradients:
                    gradient.fill_(float("inf"))
            self._taken.clear()
        self.step()

    def _hold_back_unused(self, engine: StepEngine) -> None:
        """Zero the mean of each parameter that no rank has used, and add what was exchanged of it to the residual.

        The mean has the same bits on every rank. So where each rank adds it to its residual, residuals together hold
        what entered. The mean carries the loss scale, and residuals do not.
        """
        flat_buffers, scale = engine.flat_buffers, engine.scale.get() or 1.0
        for index in engine.exchanger.participation.unused:
            start, stop = flat_buffers.offsets[index : index + 2]
            flat_buffers.next_residual[start:stop].add_(flat_buffers.grad[start:stop], alpha=1.0 / scale)
            flat_buffers.grad[start:stop] = 0.0

    @cached_property
    def _taken(self) -> list[tuple[int, Tensor]]:
        """Gradients of this iteration, each with its index in the flat buffers."""
        return []

    @cached_property
    def _indices(self) -> dict[int, int]:
        """Indices in the flat buffers, by the id of a proxy parameter."""
        assert isinstance(self._engine, StepEngine)
        return {id(proxy): index for index, proxy in enumerate(self._engine.flat_buffers.parameters)}
