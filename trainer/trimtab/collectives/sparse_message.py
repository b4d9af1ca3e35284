"""Messages of (index, value) pairs, with a vote ahead of them.

The indices are coded (`index_code`), so that a message takes less than the 8 bytes a pair of the papers' closed forms.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.collectives import index_code
from trimtab.collectives.sparse_pairs import Pairs


def pack(vote: Tensor, coded: Tensor, values: Tensor) -> Tensor:
    """One message, uint8 of a multiple of 4 bytes: ``vote`` (float32), what `index_code.encode` made, ``values``."""
    return torch.cat([vote.view(torch.uint8), coded, values.view(torch.uint8)])


def unpack(message: Tensor, vote_length: int) -> tuple[Tensor, Pairs]:
    """Inverse of `pack`, views into the message where that is possible; the peers know a vote's length."""
    vote, rest = message[: 4 * vote_length], message[4 * vote_length :]
    values = rest[rest.numel() - 4 * index_code.count_of(rest) :]
    indices = index_code.decode(rest[: rest.numel() - values.numel()])
    return vote.view(torch.float32), Pairs(indices, values.view(torch.float32))
