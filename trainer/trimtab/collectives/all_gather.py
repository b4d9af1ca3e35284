"""All-gather of sparse pairs: every rank sends its own selection to all, and each sums what it got.

Cost: log2 N alpha + 2 M c (N-1) beta (Flexible Communication, section 3-D); coded indices bring the 2
down to 1.3 at c = 1%.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.collectives import index_code
from trimtab.collectives.base import Collective, Exchange, Exchanged
from trimtab.collectives.group import Group
from trimtab.collectives.primitives import all_gather
from trimtab.collectives.stopwatch import Stopwatch

if TYPE_CHECKING:
    from trimtab.sparsify.base import Selected, Selector


class AllGather(Collective):
    """Every rank clears its own selection from its residual; the update is the mean of all selections."""

    name = "all-gather"

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        index_code.warm_up()

    def run(self, exchange: Exchange, selector: Selector | None) -> Exchanged:
        assert selector is not None, "all-gather sends a selection"
        transport = self.group.transport
        stopwatch = Stopwatch(exchange.grad.device)
        num_bytes = transport.num_bytes
        selected = selector.compress(
            exchange.grad, exchange.residual, exchange.next_residual, exchange.segments, exchange.k, exchange.start
        )
        note = exchange.write_note(selected.squared_norm_before, selected.squared_norm_after)
        message = _pack(selected, note)
        stopwatch.compressed()

        messages, num_messages = all_gather(transport, message)
        stopwatch.communicated()

        unpacked = [_unpack(message, note.numel()) for message in messages]
        # In rank order, so that the sums have the same bits everywhere.
        kernels.scatter_mean(exchange.out, [(indices, values) for _, indices, values in unpacked], 1 / transport.size)
        note.zero_()
        for other_note, _, _ in unpacked:
            note += other_note
        stopwatch.compressed()
        return Exchanged(
            sent=selected.indices,
            num_selected=selected.indices.numel(),
            squared_norm_before=selected.squared_norm_before,
            squared_norm_after=selected.squared_norm_after,
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=num_messages,
            note=None if exchange.note is None else note,
            compress_seconds=stopwatch.compress_seconds,
            collective_seconds=stopwatch.collective_seconds,
        )


def _pack(selected: Selected, note: Tensor) -> Tensor:
    """One message, uint8: note (float32), indices (coded), values (float32 [m])."""
    return torch.cat([note.view(torch.uint8), index_code.encode(selected.indices), selected.values.view(torch.uint8)])


def _unpack(message: Tensor, note_length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inverse of `_pack`."""
    note, pairs = message[: 4 * note_length], message[4 * note_length :]
    values = pairs[pairs.numel() - 4 * index_code.count_of(pairs) :]
    indices = index_code.decode(pairs[: pairs.numel() - values.numel()])
    return note.view(torch.float32), indices, values.view(torch.float32)
