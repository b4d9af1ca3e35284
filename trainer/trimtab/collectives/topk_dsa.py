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

from trimtab import kernels
from trimtab.collectives import sparse_pairs
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared
from trimtab.collectives.group import Group
from trimtab.collectives.own_selection import OwnSelection
from trimtab.collectives.primitives import all_gather
from trimtab.collectives.sparse_pairs import Pairs

if TYPE_CHECKING:
    from trimtab.collectives.transport import Transport
    from trimtab.sparsify.base import Selector

_SPARSE, _FILLED = 0, 1


class TopkDsa(Collective):
    """The update is the mean of all selections, as all-gather's; each rank clears its own."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        sparse_pairs.warm_up()

    def prepare(self, exchange: Exchange, selector: Selector | None) -> OwnSelection:
        return OwnSelection.taken(exchange, selector)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        assert isinstance(prepared, OwnSelection)
        out, stopwatch, num_bytes = exchange.out, prepared.stopwatch, transport.num_bytes
        stopwatch.resume()
        n, size, rank = out.numel(), transport.size, transport.rank
        bounds = [owner * n // size for owner in range(size + 1)]
        sums, num_messages = sparse_pairs.reduce_scatter(transport, prepared.pairs, bounds)
        stopwatch.communicated()
        message = torch.cat([vote.view(torch.uint8), _coded(sums, bounds[rank], bounds[rank + 1])])
        stopwatch.compressed()
        messages, length = all_gather(transport, message)
        stopwatch.communicated()

        head = 4 * vote.numel()
        vote.zero_()
        for (start, stop), message in zip(pairwise(bounds), messages, strict=True):
            vote += message[:head].view(torch.float32)
            _write_mean(message[head:], out[start:stop], start, 1 / size)
        stopwatch.compressed()
        return Exchanged(
            sent=prepared.pairs.indices,
            num_selected=len(prepared.pairs),
            squared_norm_before=prepared.squared_norm_before,
            squared_norm_after=prepared.squared_norm_after,
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=num_messages + length,
            vote=vote,
            compress_seconds=stopwatch.compress_seconds,
            collective_seconds=stopwatch.collective_seconds,
        )


def _coded(sums: Pairs, start: int, stop: int) -> Tensor:
    """The sums in ``start .. stop-1`` as uint8: pairs, or every element where that takes fewer bytes."""
    kind, parts = _SPARSE, list[Tensor](sums.coded())
    if sum(part.numel() * part.element_size() for part in parts) > 4 * (stop - start):
        filled = sums.values.new_zeros(stop - start)
        kernels.put(filled, sums.indices - start, sums.values)
        kind, parts = _FILLED, [filled]
    header = torch.tensor([kind], dtype=torch.int32, device=sums.values.device)
    return torch.cat([part.view(torch.uint8) for part in (header, *parts)])


def _write_mean(message: Tensor, out: Tensor, start: int, scale: float) -> None:
    """Write what `_coded` made of a range that begins at ``start``, times ``scale``."""
    kind, data = int(message[:4].view(torch.int32).item()), message[4:]
    if kind == _FILLED:
        kernels.scale_into(data.view(torch.float32), out, scale)
    else:
        pairs = Pairs.decoded(data)
        kernels.scatter_mean(out, [(pairs.indices - start, pairs.values)], scale)
