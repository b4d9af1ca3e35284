"""Messages of (index, value) pairs, with a vote ahead of them; and what schemes do with pairs that they received.

Pairs are int32 indices [m], ascending and unique, and float32 values [m]. The indices are coded (`index_code`), so that
a message takes less than the 8 bytes a pair of the papers' closed forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from trimtab_api.catalogue import wires

from trimtab.collectives import index_code
from trimtab.collectives.value_formats import format_of
from trimtab.sparsify.topk import kth_largest


class Pairs(NamedTuple):
    """Elements of a vector of which the others are zero."""

    indices: Tensor
    """int32 [m], ascending and unique."""
    values: Tensor
    """float32 [m]."""


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
