"""Messages of (index, value) pairs, with a vote ahead of them; and what schemes do with pairs that they received.

Pairs are int32 indices [m], ascending and unique, and float32 values [m]. The indices are coded (`index_code`), so that
a message takes less than the 8 bytes a pair of the papers' closed forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trimtab.collectives import index_code
from trimtab.sparsify.topk import kth_largest


class Pairs(NamedTuple):
    """Elements of a vector of which the others are zero."""

    indices: Tensor
    """int32 [m], ascending and unique."""
    values: Tensor
    """float32 [m]."""


def pack(vote: Tensor, coded: Tensor, values: Tensor) -> Tensor:
    """One message, uint8 of a multiple of 4 bytes: ``vote`` (float32), what `index_code.encode` made, ``values``."""
    return torch.cat([vote.view(torch.uint8), coded, values.view(torch.uint8)])


def unpack(message: Tensor, vote_length: int) -> tuple[Tensor, Pairs]:
    """Inverse of `pack`, views into the message where that is possible; the peers know a vote's length."""
    vote, rest = message[: 4 * vote_length], message[4 * vote_length :]
    values = rest[rest.numel() - 4 * index_code.count_of(rest) :]
    indices = index_code.decode(rest[: rest.numel() - values.numel()])
    return vote.view(torch.float32), Pairs(indices, values.view(torch.float32))


def merged(parts: Sequence[Pairs]) -> Pairs:
    """Their sum, added in the order given: the same bits wherever the same parts are added."""
    indices = torch.unique(torch.cat([part.indices for part in parts]))  # sorted
    values = torch.zeros(indices.numel(), dtype=torch.float32, device=indices.device)
    for part in parts:
        values[torch.searchsorted(indices, part.indices)] += part.values
    return Pairs(indices, values)


def split_largest(pairs: Pairs, k: int) -> tuple[Pairs, Pairs]:
    """The ``k`` pairs of largest magnitude, the first ones of equals, and the others: alike wherever the pairs are."""
    if k >= pairs.values.numel():
        return pairs, Pairs(pairs.indices[:0], pairs.values[:0])
    magnitudes = pairs.values.abs()
    boundary = kth_largest(magnitudes, k)
    keeps = magnitudes > boundary
    equals = (magnitudes == boundary).nonzero().flatten()
    keeps[equals[: k - int(keeps.sum())]] = True
    return Pairs(pairs.indices[keeps], pairs.values[keeps]), Pairs(pairs.indices[~keeps], pairs.values[~keeps])
