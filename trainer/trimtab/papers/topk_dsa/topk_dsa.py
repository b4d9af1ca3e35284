"""TopkDSA: selections are summed by ranges of indices, and the sums gathered, densely where they have filled up.

SparCML's dynamic sparse all-reduce (Renggli et al., SC 2019, section 5.3). Cost (SparDL's Table I): between
4 (N-1)/N M c and (N-1)/N (2 M c + M) bytes. Published with N + 2 log2 N messages one after another; here those to the
N-1 owners leave at once, and the all-gather tells its own sizes: 1 + log2 N follow one another.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared
from trimtab.collectives.sparse_parts import OwnSelection, reduce_scatter
from trimtab.transport.group import Group
from trimtab.transport.primitives import all_gather
from trimtab.wire import pairs as sparse_pairs
from trimtab.wire.messages import pack_range, write_range_mean

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selector
    from trimtab.transport.base import Transport


class TopkDsa(Collective):
    """The update is the mean of all selections, as all-gather's; each rank clears its own.

    A rank keeps the rounding errors of its own values and of the sums of its range.
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        sparse_pairs.warm_up()

    def prepare(self, exchange: Exchange, selector: Selector | None) -> OwnSelection:
        """Select on this rank."""
        return OwnSelection.taken(exchange, selector)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Sum selections by ranges, and gather the sums."""
        assert isinstance(prepared, OwnSelection)
        out, timer, num_bytes = exchange.out, prepared.timer, transport.num_bytes
        timer.resume()
        n, size, rank = out.numel(), transport.size, transport.rank
        bounds = [owner * n // size for owner in range(size + 1)]
        residual, wire = exchange.next_residual, exchange.wire
        sums, lost, num_messages = reduce_scatter(transport, prepared.pairs, bounds, wire)
        timer.communicated()
        coded, lost_of_sums = pack_range(sums, bounds[rank], bounds[rank + 1], wire)
        kept = sum(sparse_pairs.keep(residual, errors) for errors in (lost, lost_of_sums))
        message = torch.cat([vote.view(torch.uint8), coded])
        timer.compressed()
        messages, length = all_gather(transport, message)
        timer.communicated()

        head = 4 * vote.numel()
        vote.zero_()
        for (start, stop), message in zip(pairwise(bounds), messages, strict=True):
            vote += message[:head].view(torch.float32)
            write_range_mean(message[head:], out[start:stop], start, 1 / size, wire)
        timer.compressed()
        return Exchanged(
            sent=prepared.pairs.indices,
            num_selected=len(prepared.pairs),
            squared_norm_before=prepared.squared_norm_before,
            squared_norm_after=max(0.0, prepared.squared_norm_after + kept),
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=num_messages + length,
            vote=vote,
            compress_seconds=timer.compress_seconds,
            collective_seconds=timer.collective_seconds,
        )
