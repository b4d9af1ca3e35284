"""AR-Topk: one rank's selection is all-reduced (Flexible Communication, Algorithm 1).

The leader broadcasts its indices. Every rank sends its own accumulated gradient at these, and clears only these from
its residual. What a rank would have selected itself waits until it leads. Cost: equations 4a (ring) and 4b (tree), less
what coding saves of the indices.

STAR is CLT-k (ScaleCom, arXiv 2104.11125), which has no name of its own here: what it adds, a low-pass filter of the
residual, would lose a part of the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared
from trimtab.collectives.sparse_parts import mean_at
from trimtab.sparsifiers.base import Selected, joined
from trimtab.transport.base import Transport
from trimtab.transport.group import Group
from trimtab.transport.primitives import all_gather, broadcast
from trimtab.transport.timer import LapTimer
from trimtab.wire import index_code

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selector


@dataclass(frozen=True)
class Candidate(Prepared):
    """What a rank that may lead has prepared."""

    selected: Selected | None
    """Its selection, if it has selected already."""
    indices: Tensor | None
    """uint8: the selection's indices, coded, where this rank is sure to lead."""
    merit: float
    """The rank with the largest leads; 0 where ranks take turns."""
    selector: Selector
    timer: LapTimer


class ArTopk(Collective):
    """The leader is the next in turn (STAR), or the one with the largest merit (VAR).

    Only the leader selects, but for VAR by the norm of the selection, for which every rank does. Under VAR a gathering
    of one float each comes on top of the closed form's messages.
    """

    def __init__(self, group: Group, *, shape: str, by: str | None = None) -> None:
        """Make the scheme.

        Args:
            group: The ranks that exchange.
            shape: Shape of the all-reduce: ``ring`` or ``tree``.
            by: The merit by which a leader is elected (VAR): ``variance`` of the gradient plus the residual (section
                3-A), norm of the ``gradient`` (the paper's code), or norm of the ``selection``; None: in turn (STAR).
        """
        super().__init__(group)
        index_code.warm_up()
        self._by, self._shape = by, shape

    def prepare(self, exchange: Exchange, selector: Selector | None) -> Candidate:
        """Select where this rank leads, or is judged by its selection; only accumulate otherwise."""
        assert selector is not None, "AR-Topk sends a selection"
        timer = LapTimer(exchange.out.device)
        selected = coded = None
        merit = 0.0
        if self._by == "selection" or (self._by is None and self._leader_in_turn(exchange) == self.group.rank):
            selected = selector.compress(
                exchange.grad, exchange.residual, exchange.next_residual, exchange.segments, exchange.k, exchange.start
            )
            before = selected.squared_norm_before
        else:
            before = kernels.accumulate(exchange.grad, exchange.residual, exchange.next_residual)
        if self._by == "selection":
            assert selected is not None
            merit = kernels.squared_norm(selected.values)
        elif self._by == "gradient":
            merit = kernels.squared_norm(exchange.grad)
        elif self._by == "variance":
            mean = float(exchange.next_residual.mean())
            merit = max(0.0, before / exchange.next_residual.numel() - mean * mean)
        elif selected is not None:
            coded = index_code.encode(selected.indices)
        timer.compressed()
        return Candidate(before, selected, coded, merit, selector, timer)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Broadcast the leader's indices, and all-reduce the values there."""
        assert isinstance(prepared, Candidate)
        residual, timer, selected = exchange.next_residual, prepared.timer, prepared.selected
        num_bytes, num_messages = transport.num_bytes, 0
        timer.resume()
        leader = self._leader_in_turn(exchange)
        if self._by is not None:
            leader, num_messages = _elected(transport, prepared.merit)
            timer.communicated()
            if leader == transport.rank and selected is None:
                selected = _select_formed(exchange, prepared.selector)
            elif leader != transport.rank and selected is not None:
                kernels.put(residual, selected.indices, selected.values)
                selected = None
        own = prepared.indices
        if selected is not None and own is None:
            own = index_code.encode(selected.indices)
        timer.compressed()
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


def _select_formed(exchange: Exchange, selector: Selector) -> Selected:
    """Select in each segment of ``exchange.next_residual``, where gradient plus residual stands already."""
    acc, found = exchange.next_residual, []
    for first, end, k in zip(exchange.segments[:-1], exchange.segments[1:], exchange.k, strict=True):
        if end > first:
            taken = selector.take(acc[first:end], min(k, end - first), (exchange.start + first, end - first))
            found.append(replace(taken, indices=taken.indices + first))
    return joined(found)


def _elected(transport: Transport, merit: float) -> tuple[int, int]:
    """Elect the rank with the largest merit; the lowest rank among equals.

    Returns:
        The leader, and the messages of the longest chain.
    """
    merits, num_messages = all_gather(transport, torch.tensor([merit], dtype=torch.float32).view(torch.uint8))
    return int(torch.cat(merits).view(torch.float32).argmax().item()), num_messages
