"""AR-Topk: one rank's selection is all-reduced (Flexible Communication, Algorithm 1).

The leader broadcasts its indices. Every rank sends its own accumulated gradient at these, and clears only these from
its residual. What a rank would have selected itself waits until it leads. Cost: equations 4a (ring) and 4b (tree), less
what coding saves of the indices.

STAR is CLT-k (ScaleCom, arXiv 2104.11125), which has no name of its own here: what it adds, a low-pass filter of the
residual, would lose a part of the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared
from trimtab.collectives.sparse_parts import mean_at
from trimtab.transport.base import Transport
from trimtab.transport.group import Group
from trimtab.transport.primitives import all_gather, broadcast
from trimtab.transport.timer import LapTimer
from trimtab.wire import index_code

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selected, Selector


@dataclass(frozen=True)
class Candidates(Prepared):
    """A rank's own selection, if it may lead."""

    selected: Selected | None
    indices: Tensor | None
    """uint8: the selection's indices, coded; None while several ranks may still lead."""
    timer: LapTimer


class ArTopk(Collective):
    """The leader is the next in turn (STAR), or the one whose selection has the largest norm (VAR).

    Under STAR the others do not select at all. Under VAR every rank does, and a gathering of one float each comes on
    top of the closed form's messages.
    """

    def __init__(self, group: Group, *, election: str, shape: str) -> None:
        """Make the scheme.

        Args:
            group: The ranks that exchange.
            election: How the leader is chosen: ``star`` (round robin) or ``var`` (largest norm of the selection).
            shape: Shape of the all-reduce: ``ring`` or ``tree``.
        """
        super().__init__(group)
        index_code.warm_up()
        self._elect = election == "var"
        self._shape = shape

    def prepare(self, exchange: Exchange, selector: Selector | None) -> Candidates:
        """Select on ranks that may lead; only accumulate on the others."""
        assert selector is not None, "AR-Topk sends a selection"
        timer = LapTimer(exchange.out.device)
        if self._elect or self._leader_in_turn(exchange) == self.group.rank:
            selected = selector.compress(
                exchange.grad, exchange.residual, exchange.next_residual, exchange.segments, exchange.k, exchange.start
            )
            before = selected.squared_norm_before
        else:
            selected = None
            before = kernels.accumulate(exchange.grad, exchange.residual, exchange.next_residual)
        # Of the ranks that may be elected, one will send its indices.
        coded = None if selected is None or self._elect else index_code.encode(selected.indices)
        timer.compressed()
        return Candidates(before, selected, coded, timer)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Broadcast the leader's indices, and all-reduce the values there."""
        assert isinstance(prepared, Candidates)
        residual, timer, selected = exchange.next_residual, prepared.timer, prepared.selected
        num_bytes, num_messages = transport.num_bytes, 0
        timer.resume()
        leader = self._leader_in_turn(exchange)
        if self._elect:
            assert selected is not None, "every rank selects, to be elected"
            leader, num_messages = _elected(transport, selected)
            if leader != transport.rank:
                kernels.put(residual, selected.indices, selected.values)
                selected = None
        own = prepared.indices
        if selected is not None and own is None:
            own = index_code.encode(selected.indices)
        coded, length = broadcast(transport, own, leader)
        num_messages += length
        timer.communicated()

        indices = index_code.decode(coded)
        if selected is not None:
            values, after = selected.values.clone(), selected.squared_norm_after
        else:
            values = kernels.take(residual, indices)
            after = max(0.0, prepared.squared_norm_before - kernels.clear(residual, indices))
        timer.compressed()

        length, kept = mean_at(exchange, transport, indices, values, vote, timer, self._shape)
        return Exchanged(
            sent=indices,
            num_selected=indices.numel(),
            squared_norm_before=prepared.squared_norm_before,
            squared_norm_after=after + kept,
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=num_messages + length,
            vote=vote,
            compress_seconds=timer.compress_seconds,
            collective_seconds=timer.collective_seconds,
        )

    def _leader_in_turn(self, exchange: Exchange) -> int:
        return exchange.step % self.group.size


def _elected(transport: Transport, selected: Selected) -> tuple[int, int]:
    """Elect the rank whose selection has the largest norm; the lowest rank among equals.

    Returns:
        The leader, and the messages of the longest chain.
    """
    norm = torch.linalg.vector_norm(selected.values).view(1)
    norms, num_messages = all_gather(transport, norm.view(torch.uint8))
    return int(torch.cat(norms).view(torch.float32).argmax().item()), num_messages
