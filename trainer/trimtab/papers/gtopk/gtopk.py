"""gTopk: selections are summed up a binomial tree, and at each merge only the k largest sums go on.

Shi et al., ICDCS 2019, Algorithm 3. Cost (SparDL's Table I): 2 log2 N alpha + 4 log2 N M c beta, less what coding saves
of the indices. As published it joins 2^i ranks in pairs; a binomial tree does so too, and joins any other number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared
from trimtab.collectives.sparse_parts import OwnSelection
from trimtab.transport.group import Group
from trimtab.transport.primitives import binomial_tree, broadcast, chain_length
from trimtab.wire import pairs as sparse_pairs
from trimtab.wire.pairs import Pairs

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selector
    from trimtab.transport.base import Transport


class GTopk(Collective):
    """The update has k elements: those that won every merge on their way to rank 0, which sends them to all.

    A rank that drops a sum at a merge, or rounds one, keeps that in its own residual. As published, no rank does: an
    element of which some ranks' part was dropped, and another's won, is cleared everywhere, and that part is lost.

    Where k is chosen per tensor, the largest sum of each tensor wins every merge. That rule is not the paper's.
    """

    def __init__(self, group: Group, *, residual: str) -> None:
        """Make the scheme; ``residual`` is ``kept``, or ``paper``: as published, outside the conservation law."""
        super().__init__(group)
        sparse_pairs.warm_up()
        self._keeps_dropped = residual == "kept"

    def prepare(self, exchange: Exchange, selector: Selector | None) -> OwnSelection:
        """Select on this rank."""
        return OwnSelection.taken(exchange, selector)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Sum selections up the tree, keep the k largest sums at each merge, and broadcast the winners."""
        assert isinstance(prepared, OwnSelection)
        residual, timer, num_bytes = exchange.next_residual, prepared.timer, transport.num_bytes
        own, after, k = prepared.pairs, prepared.squared_norm_after, sum(exchange.k)
        wire = exchange.wire
        timer.resume()
        parent, children = binomial_tree(transport.rank, transport.size)
        sums = own
        for child in reversed(children):  # the shallowest subtree is ready first
            message = transport.receive_bytes(child)
            timer.communicated()
            head = 4 * vote.numel()
            vote += message[:head].view(torch.float32)
            merged = sparse_pairs.added([sums, Pairs.decoded(message[head:], wire)])
            sums, dropped = sparse_pairs.strongest(merged, k, exchange.segments)
            if self._keeps_dropped:
                after += sparse_pairs.keep(residual, dropped)
            timer.compressed()
        sums, lost = sums.rounded(wire)
        if self._keeps_dropped:
            after += sparse_pairs.keep(residual, lost)
        message = torch.cat([part.view(torch.uint8) for part in (vote, *sums.coded(wire))])
        timer.compressed()
        if parent is not None:
            transport.send(parent, message)
        message, _ = broadcast(transport, message if parent is None else None, root=0)
        timer.communicated()

        head = 4 * vote.numel()
        vote, winners = message[:head].view(torch.float32), Pairs.decoded(message[head:], wire)
        kernels.scatter_mean(exchange.out, [(winners.indices, winners.values)], 1 / transport.size)
        cleared = own
        if not self._keeps_dropped:
            has_won = sparse_pairs.contained(own.indices, winners.indices)
            cleared = own.only(has_won)
            after += sparse_pairs.keep(residual, own.only(~has_won))
        timer.compressed()
        return Exchanged(
            sent=cleared.indices,
            num_selected=len(own),
            squared_norm_before=prepared.squared_norm_before,
            squared_norm_after=max(0.0, after),
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=2 * chain_length(transport.size),
            vote=vote.clone(),
            compress_seconds=timer.compress_seconds,
            collective_seconds=timer.collective_seconds,
        )
