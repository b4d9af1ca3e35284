"""The script's backward passes, as the exchange sees them: gradients come one by one, and then the pass has ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from trimtab_api.errors import UserError

from trimtab.engine.gradients.autograd_hooks import BackwardHooks
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.phase_timer import PhaseTimer


class TakesGradients(Protocol):
    """Receiver of the gradients of backward passes."""

    def check_gradient(self, index: int) -> None:
        """Raise `UserError` if tensor ``index``'s gradient cannot be taken in this step."""

    def take_gradient(self, index: int) -> None:
        """Take tensor ``index``'s gradient, which is complete."""

    def refuse(self, refusal: UserError) -> None:
        """Finish no step with the gradients of this pass."""

    def end_pass(self) -> None:
        """Finish the exchange, if it has begun: a backward pass outside of `no_sync` has ended."""


class WatchesGradients(Protocol):
    """Profiles backward passes."""

    def watched(self, on_gradient: Callable[[int], None]) -> Callable[[int], None]:
        """Return ``on_gradient`` with the time of each call noted."""


class BackwardPasses:
    """Watches the backward passes over one set of flat buffers."""

    def __init__(
        self,
        flat_buffers: FlatBuffers,
        exchanger: TakesGradients,
        before_backward: Callable[[int], None],
        profiler: WatchesGradients | None,
        phases: PhaseTimer,
    ) -> None:
        """``before_backward`` takes the index of each pass's first gradient, and may refuse the pass."""
        self._exchanger, self._before_backward, self._phases = exchanger, before_backward, phases
        self.accumulates = False
        """True while backward passes only accumulate."""
        self._pass: int | None = None
        """The pass under way, as autograd numbers it; passes inside of one have numbers of their own."""
        on_gradient = self._on_gradient if profiler is None else profiler.watched(self._on_gradient)
        self._hooks = BackwardHooks(flat_buffers.parameters, on_gradient, self._on_end)

    def close(self) -> None:
        """Let go of the parameters."""
        self._hooks.remove()

    @property
    def num_ended(self) -> int:
        """Passes that have ended, but for those inside of others."""
        return self._hooks.num_ended

    @property
    def is_inside(self) -> bool:
        """True if a pass is under way, or has ended with an exception."""
        return self._hooks.is_inside

    def tell(self, index: int) -> None:
        """Take tensor ``index``'s gradient, which somebody else has put into its ``grad``: no hook sees that."""
        self._hooks.tell(index)

    def end(self) -> None:
        """End the pass whose gradients came by `tell`."""
        self._hooks.end()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Have backward passes inside only accumulate."""
        before, self.accumulates = self.accumulates, True
        try:
            yield
        finally:
            self.accumulates = before

    def _on_gradient(self, index: int) -> None:
        try:
            if (number := torch._C._current_graph_task_id()) != self._pass:
                self._pass = number
                self._phases.enter("backward")
                self._before_backward(index)
            self._exchanger.check_gradient(index)
        except UserError as refusal:
            self._exchanger.refuse(refusal)  # should the script go on in spite of it
            raise
        if not self.accumulates:
            self._exchanger.take_gradient(index)

    def _on_end(self) -> None:
        self._phases.enter("forward")
        if not self.accumulates:
            self._exchanger.end_pass()
