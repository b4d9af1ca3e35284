"""All-gather of sparse pairs: every rank sends its own selection to all, and each sums what it receives.

Cost: log2 N alpha + 2 M c (N-1) beta (Flexible Communication, section 3-D). Coded indices reduce the factor 2 to 1.3 at
c = 1%.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared
from trimtab.transport.group import Group
from trimtab.transport.primitives import all_gather
from trimtab.transport.recursive_halving import doubling_all_gather
from trimtab.transport.timer import LapTimer
from trimtab.wire import index_code
from trimtab.wire.messages import pack, unpack
from trimtab.wire.value_formats import format_of, put_errors

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selected, Selector
    from trimtab.transport.base import Transport


@dataclass(frozen=True)
class Coded(Prepared):
    """A selection whose indices and values are coded."""

    selected: Selected
    indices: Tensor
    """uint8: the indices, coded."""
    values: Tensor
    """uint8: the values in the format in which they cross."""
    squared_norm_after: float
    """Squared norm of the new residual, rounding errors included."""
    timer: LapTimer


class AllGather(Collective):
    """Every rank clears its own selection from its residual; the update is the mean of all selections.

    A rank keeps the rounding errors of its own values.
    """

    def __init__(self, group: Group, *, rounds: str = "bruck") -> None:
        """Make the scheme.

        Args:
            group: The ranks that exchange.
            rounds: ``bruck``, or ``doubling`` for recursive doubling, as TopkA is published.
        """
        super().__init__(group)
        self._all_gather = doubling_all_gather if rounds == "doubling" else all_gather
        index_code.warm_up()

    def prepare(self, exchange: Exchange, selector: Selector | None) -> Coded:
        """Select, and code indices and values."""
        assert selector is not None, "all-gather sends a selection"
        timer = LapTimer(exchange.out.device)
        selected = selector.compress(
            exchange.grad, exchange.residual, exchange.next_residual, exchange.segments, exchange.k, exchange.start
        )
        coded, after = index_code.encode(selected.indices), selected.squared_norm_after
        form = format_of(exchange.wire)
        values = form.encode(selected.values)
        if not form.is_exact:
            errors = selected.values - form.decode(values, selected.values.numel())
            after += put_errors(exchange.next_residual, selected.indices, errors)
        timer.compressed()
        return Coded(selected.squared_norm_before, selected, coded, values, after, timer)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Gather all ranks' selections, and add them in rank order."""
        assert isinstance(prepared, Coded)
        selected, timer, num_bytes = prepared.selected, prepared.timer, transport.num_bytes
        timer.resume()
        message = pack(vote, prepared.indices, prepared.values)
        timer.compressed()

        messages, num_messages = self._all_gather(transport, message)
        timer.communicated()

        unpacked = [unpack(message, vote.numel(), exchange.wire) for message in messages]
        # In rank order, so that the sums have the same bits everywhere.
        kernels.scatter_mean(exchange.out, [pairs.parts for _, pairs in unpacked], 1 / transport.size)
        vote.zero_()
        for part_vote, _ in unpacked:
            vote += part_vote
        timer.compressed()
        return Exchanged(
            sent=selected.indices,
            num_selected=selected.indices.numel(),
            squared_norm_before=selected.squared_norm_before,
            squared_norm_after=prepared.squared_norm_after,
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=num_messages,
            vote=vote,
            compress_seconds=timer.compress_seconds,
            collective_seconds=timer.collective_seconds,
        )
