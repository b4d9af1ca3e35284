"""Rounds of local steps, as a session asks for them: end one now, look at its anchor, make weights alike."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn

from trimtab.engine.deferred.forward_hooks import ForwardSyncHooks
from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.local_sgd.sync import LocalSgdSync
from trimtab.transport.object_collectives import broadcast_tensors


class Rounds:
    """The rounds of one engine; where gradients are exchanged in every step there are none."""

    def __init__(
        self, model: nn.Module, exchanger: Exchanger, local_sync: LocalSgdSync, forward_hooks: ForwardSyncHooks
    ) -> None:
        self._model, self._exchanger = model, exchanger
        self._local_sync, self._forward_hooks = local_sync, forward_hooks

    def flush(self) -> None:
        """Have all ranks at one anchor, with nothing under way beyond its round; all call it, between steps."""
        self._forward_hooks.settle()
        if self._exchanger.plan.overlaps_rounds:
            self.end()

    def end(self) -> Outcome | None:
        """Exchange what local steps have done so far; None where there is nothing. Every rank calls it together."""
        return self._local_sync.flush()

    @contextlib.contextmanager
    def at_anchor(self) -> Iterator[None]:
        """Have the weights, inside, be those with which the present round began."""
        self._forward_hooks.settle()
        local = self._local_sync.local
        with contextlib.nullcontext() if local is None else local.at_anchor():
            yield

    def align_weights(self) -> None:
        """Take over rank 0's weights: unlike processors round unlike, and what that adds up to is taken back."""
        self.flush()
        broadcast_tensors(self._exchanger.group, self._model.parameters())
        if self._local_sync.local is not None:
            self._local_sync.local.set_anchor()
