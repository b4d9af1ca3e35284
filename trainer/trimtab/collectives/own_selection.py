"""The first half of schemes that sum selections on their way: every rank takes its own out of the buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.collectives.base import Exchange, Prepared
from trimtab.collectives.sparse_messages.pairs import Pairs
from trimtab.transport.timer import LapTimer

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selector


@dataclass(frozen=True)
class OwnSelection(Prepared):
    """What this rank selected; its residual no longer holds it."""

    pairs: Pairs
    squared_norm_after: float
    """Sum of squares of the residual without it."""
    timer: LapTimer

    @classmethod
    def taken(cls, exchange: Exchange, selector: Selector | None) -> OwnSelection:
        """Out of one buffer; does not communicate."""
        assert selector is not None, "a sparse scheme sends a selection"
        timer = LapTimer(exchange.out.device)
        selected = selector.compress(
            exchange.grad, exchange.residual, exchange.next_residual, exchange.segments, exchange.k, exchange.start
        )
        timer.compressed()
        pairs = Pairs(selected.indices, selected.values)
        return cls(selected.squared_norm_before, pairs, selected.squared_norm_after, timer)
