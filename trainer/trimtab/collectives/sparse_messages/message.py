"""Messages of (index, value) pairs, with a vote ahead of them.

The indices are coded (`index_code`), so that a message takes less than the 8 bytes a pair of the papers' closed forms.
"""

from __future__ import annotations

import torch
from torch import Tensor
from trimtab_api.catalogue import wires

from trimtab.collectives.sparse_messages.pairs import Pairs
from trimtab.wire import index_code
from trimtab.wire.value_formats import format_of


def pack(vote: Tensor, coded: Tensor, values: Tensor) -> Tensor:
    """One message, uint8 of a multiple of 4 bytes: ``vote`` (float32), what `index_code.encode` made, ``values``.

    The values are float32, or uint8 that a `ValueFormat` made of them.
    """
    parts = [vote.view(torch.uint8), coded, values.view(torch.uint8)]
    padding = -parts[2].numel() % 4
    return torch.cat([*parts, parts[2].new_zeros(padding)] if padding else parts)


def unpack(message: Tensor, vote_length: int, wire: str = wires.default) -> tuple[Tensor, Pairs]:
    """Inverse of `pack`, views into the message where that is possible; the peers know a vote's length and the format.

    What was sent of the values: rounded, where the format rounds.
    """
    vote, rest = message[: 4 * vote_length], message[4 * vote_length :]
    count, form = index_code.count_of(rest), format_of(wire)
    num_bytes = form.num_bytes(count)
    head = rest.numel() - -(-num_bytes // 4) * 4
    indices = index_code.decode(rest[:head])
    return vote.view(torch.float32), Pairs(indices, form.decode(rest[head : head + num_bytes], count))
