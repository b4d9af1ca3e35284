"""AR-Topk: one rank's selection is all-reduced (Flexible Communication, Algorithm 1).

The leader broadcasts its indices; every rank sends its own accumulated gradient at those, and clears only those from
its residual, so what a rank would have chosen itself waits for its turn. Cost: equations 4a (ring) and 4b (tree), less
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
    """This rank's own selection, where it may lead."""

    selected: Selected | None
    indices: Tensor | None
    """uint8: those of the selection, coded."""
    timer: LapTimer


class ArTopk(Collective):
    """The leader is the next in turn (STAR), or the one whose selection has the largest norm (VAR).

    Under STAR the others do not select at all. Under VAR every rank does, and a gathering of one float each comes on
    top of the closed form's messages.
    """

    def __init__(self, group: Group, *, election: str, shape: str) -> None:
        """``election`` is ``star`` or ``var``, ``shape`` that of the all-reduce, ``ring`` or ``tree``."""
        super().__init__(group)
        index_code.warm_up()
        self._elect = election == "var"
        self._shape = shape

    def prepare(self, exchange: Exchange, selector: Selector | None) -> Candidates:
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
        # Of those who may be elected, one will send its indices.
        coded = None if selected is None or self._elect else index_code.encode(selected.indices)
        timer.compressed()
        return Candidates(before, selected, coded, timer)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
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
    """The rank whose selection has the largest norm (the lowest of equals), and the messages it took to agree."""
    norm = torch.linalg.vector_norm(selected.values).view(1)
    norms, num_messages = all_gather(transport, norm.view(torch.uint8))
    return int(torch.cat(norms).view(torch.float32).argmax().item()), num_messages
