"""The steps that sparse schemes share: own selections, a reduce-scatter of pairs, a mean at shared indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from trimtab_api.catalogue import wires

from trimtab import kernels
from trimtab.collectives.base import Exchange, Prepared
from trimtab.transport.primitives import all_reduce, all_to_all
from trimtab.transport.rounded_vector import rounding_to
from trimtab.transport.timer import LapTimer
from trimtab.wire.pairs import Pairs, added, joined
from trimtab.wire.value_formats import put_errors

if TYPE_CHECKING:
    from torch import Tensor

    from trimtab.sparsifiers.base import Selector
    from trimtab.transport.base import Transport


@dataclass(frozen=True)
class OwnSelection(Prepared):
    """A rank's own selection; its residual no longer holds it."""

    pairs: Pairs
    squared_norm_after: float
    """Sum of squares of the residual without the selection."""
    timer: LapTimer

    @classmethod
    def taken(cls, exchange: Exchange, selector: Selector | None) -> OwnSelection:
        """Select in one buffer, without communicating."""
        assert selector is not None, "a sparse scheme sends a selection"
        timer = LapTimer(exchange.out.device)
        selected = selector.compress(
            exchange.grad, exchange.residual, exchange.next_residual, exchange.segments, exchange.k, exchange.start
        )
        timer.compressed()
        pairs = Pairs(selected.indices, selected.values)
        return cls(selected.squared_norm_before, pairs, selected.squared_norm_after, timer)


def reduce_scatter(transport: Transport, pairs: Pairs, bounds: Sequence[int], wire: str) -> tuple[Pairs, Pairs, int]:
    """Give rank r the sum over the ranks of their pairs in the range ``bounds[r] .. bounds[r+1] - 1``.

    Every rank sends each of the others at once what it has in that rank's range (the split of SparCML's
    SSAR_Split_allgather, section 5.3).

    Args:
        transport: Connects the ranks.
        pairs: This rank's elements.
        bounds: N + 1 ascending offsets.
        wire: Value format in which values are sent.

    Returns:
        This rank's sums, added in rank order; the rounding errors of the pairs that it sent; and the messages of the
        longest chain.
    """
    rank, ranges = transport.rank, pairs.cut(bounds)
    sent = [part.rounded(wires.default if peer == rank else wire) for peer, part in enumerate(ranges)]
    received, num_messages = all_to_all(
        transport, [() if peer == rank else part.coded(wire) for peer, (part, _) in enumerate(sent)]
    )
    parts = [ranges[peer] if peer == rank else Pairs.decoded(message, wire) for peer, message in enumerate(received)]
    return added(parts), joined([lost for _, lost in sent]), num_messages


def mean_at(
    exchange: Exchange,
    transport: Transport,
    indices: Tensor,
    values: Tensor,
    vote: Tensor,
    timer: LapTimer,
    shape: str = "ring",
) -> tuple[int, float]:
    """Write the mean over ranks of values at indices that all ranks share to ``exchange.out``.

    Rounding errors stay in the residual, which must be zero at the indices.

    Args:
        exchange: The buffer.
        transport: Connects the ranks.
        indices: int32 [m], the same on every rank.
        values: float32 [m], this rank's; comes back summed.
        vote: float32 [v]; comes back summed.
        timer: Charged with both phases.
        shape: Shape of the all-reduce.

    Returns:
        The messages of the longest chain, and the squared norm of the rounding errors kept.
    """
    rounding = rounding_to(exchange.wire, torch.zeros_like(values))
    num_messages = all_reduce(transport, shape, [values, vote], rounding)
    timer.communicated()
    kept = 0.0 if rounding is None else put_errors(exchange.next_residual, indices, rounding.errors)
    kernels.scatter_mean(exchange.out, [(indices, values)], 1 / transport.size)
    timer.compressed()
    return num_messages, kept
