"""AR-Topk: one rank's selection is all-reduced (Flexible Communication, Algorithm 1).

The leader broadcasts its indices; every rank sends its own accumulated gradient at those, and clears only those from
its residual, so what a rank would have chosen itself waits for its turn. Cost: equations 4a (ring) and 4b (tree), less
what coding saves of the indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.collectives import index_code
from trimtab.collectives.base import Collective, Exchange, Exchanged
from trimtab.collectives.group import Group
from trimtab.collectives.primitives import all_gather, broadcast, ring_all_reduce, tree_all_reduce
from trimtab.collectives.stopwatch import Stopwatch
from trimtab.collectives.transport import Transport

if TYPE_CHECKING:
    from trimtab.sparsify.base import Selected, Selector

AllReduce = Callable[[Transport, Sequence[Tensor]], int]


class ArTopk(Collective):
    """The leader is the next in turn (STAR), or the one whose selection has the largest norm (VAR).

    Under STAR the others do not select at all. Under VAR every rank does, and a gathering of one float each comes on
    top of the closed form's messages.
    """

    def __init__(self, group: Group, *, name: str, elect: bool, all_reduce: AllReduce) -> None:
        super().__init__(group)
        index_code.warm_up()
        self.name = name
        self._elect = elect
        self._all_reduce = all_reduce

    def run(self, exchange: Exchange, selector: Selector | None) -> Exchanged:
        assert selector is not None, "AR-Topk sends a selection"
        transport = self.group.transport
        residual = exchange.next_residual
        stopwatch = Stopwatch(exchange.grad.device)
        num_bytes, num_messages = transport.num_bytes, 0

        leader = exchange.step % transport.size
        selected = None
        if self._elect or leader == transport.rank:
            selected = selector.compress(
                exchange.grad, exchange.residual, residual, exchange.segments, exchange.k, exchange.start
            )
            before = selected.squared_norm_before
        else:
            before = kernels.accumulate(exchange.grad, exchange.residual, residual)
        stopwatch.compressed()

        if self._elect:
            assert selected is not None, "every rank selects, for its vote"
            leader, length = _vote(transport, selected)
            num_messages += length
            if leader != transport.rank:
                kernels.put(residual, selected.indices, selected.values)
                selected = None
        chosen = None if selected is None else index_code.encode(selected.indices)
        coded, length = broadcast(transport, chosen, leader)
        num_messages += length
        stopwatch.communicated()

        indices = index_code.decode(coded)
        if selected is not None:
            values, after = selected.values.clone(), selected.squared_norm_after
        else:
            values = kernels.take(residual, indices)
            after = max(0.0, before - kernels.clear(residual, indices))
        note = exchange.write_note(before, after)
        stopwatch.compressed()

        num_messages += self._all_reduce(transport, [values, note])
        stopwatch.communicated()

        kernels.scatter_mean(exchange.out, [(indices, values)], 1 / transport.size)
        stopwatch.compressed()
        return Exchanged(
            sent=indices,
            num_selected=indices.numel(),
            squared_norm_before=before,
            squared_norm_after=after,
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=num_messages,
            note=None if exchange.note is None else note,
            compress_seconds=stopwatch.compress_seconds,
            collective_seconds=stopwatch.collective_seconds,
        )


def _vote(transport: Transport, selected: Selected) -> tuple[int, int]:
    """The rank whose selection has the largest norm (the lowest of equals), and the messages it took to agree."""
    vote = torch.linalg.vector_norm(selected.values).view(1)
    votes, num_messages = all_gather(transport, vote.view(torch.uint8))
    return int(torch.cat(votes).view(torch.float32).argmax().item()), num_messages


#: The four variants by name.
VARIANTS: dict[str, Callable[[Group], Collective]] = {
    f"artopk-{election}-{shape}": partial(
        ArTopk, name=f"artopk-{election}-{shape}", elect=election == "var", all_reduce=all_reduce
    )
    for election in ("star", "var")
    for shape, all_reduce in (("ring", ring_all_reduce), ("tree", tree_all_reduce))
}
