"""A range of elements of which some are not zero: pairs, or every element where that takes fewer bytes."""

from __future__ import annotations

import torch
from torch import Tensor
from trimtab_api.catalogue import wires

from trimtab import kernels
from trimtab.collectives.sparse_messages.pairs import Pairs
from trimtab.wire.value_formats import format_of

_SPARSE, _FILLED = 0, 1


def encode(pairs: Pairs, start: int, stop: int, wire: str = wires.default) -> tuple[Tensor, Pairs]:
    """The pairs in ``start .. stop-1`` as uint8, and what the format takes of them."""
    form = format_of(wire)
    sent, lost = pairs.rounded(wire)
    kind, parts = _SPARSE, list[Tensor](sent.coded(wire))
    if sum(part.numel() * part.element_size() for part in parts) > form.num_bytes(stop - start):
        filled = pairs.values.new_zeros(stop - start)
        kernels.put(filled, pairs.indices - start, pairs.values)
        values = form.encode(filled)
        kind, parts = _FILLED, [values, values.new_zeros(-values.numel() % 4)]
        arriving = form.decode(values, stop - start)
        lost = Pairs(pairs.indices, pairs.values - kernels.take(arriving, pairs.indices - start))
    header = torch.tensor([kind], dtype=torch.int32, device=pairs.values.device)
    return torch.cat([part.view(torch.uint8) for part in (header, *parts)]), lost


def write_mean(message: Tensor, out: Tensor, start: int, scale: float, wire: str = wires.default) -> None:
    """Write what `encode` made of a range that begins at ``start``, times ``scale``."""
    kind, data = int(message[:4].view(torch.int32).item()), message[4:]
    if kind == _FILLED:
        form = format_of(wire)
        values = form.decode(data[: form.num_bytes(out.numel())], out.numel())
        kernels.scale_into(values, out, scale)
    else:
        pairs = Pairs.decoded(data, wire)
        kernels.scatter_mean(out, [(pairs.indices - start, pairs.values)], scale)
