"""Messages of (index, value) pairs: with a vote ahead of them, or of a range that may be sent densely.

The indices are coded (`index_code`), so that a message takes less than the 8 bytes a pair of the papers' closed forms.
"""

from __future__ import annotations

import torch
from torch import Tensor
from trimtab_api.catalogue import wires

from trimtab import kernels
from trimtab.wire import index_code
from trimtab.wire.pairs import Pairs
from trimtab.wire.value_formats import format_of

#: Whether a range is sent as pairs, or every element of it.
_SPARSE, _FILLED = 0, 1


def pack(vote: Tensor, coded: Tensor, values: Tensor) -> Tensor:
    """Join a vote, coded indices and values into one message.

    Args:
        vote: float32 [v].
        coded: uint8, of `index_code.encode`.
        values: float32 [m], or uint8 that a `ValueFormat` made of them.

    Returns:
        uint8, a multiple of 4 bytes.
    """
    parts = [vote.view(torch.uint8), coded, values.view(torch.uint8)]
    padding = -parts[2].numel() % 4
    return torch.cat([*parts, parts[2].new_zeros(padding)] if padding else parts)


def unpack(message: Tensor, vote_length: int, wire: str = wires.default) -> tuple[Tensor, Pairs]:
    """Split what `pack` joined, into views of the message where possible.

    Args:
        message: uint8.
        vote_length: Elements of the vote.
        wire: Value format of the pairs.

    Returns:
        The vote, and the pairs as they were sent: rounded, if the format rounds.
    """
    vote, rest = message[: 4 * vote_length], message[4 * vote_length :]
    count, form = index_code.count_of(rest), format_of(wire)
    num_bytes = form.num_bytes(count)
    head = rest.numel() - -(-num_bytes // 4) * 4
    indices = index_code.decode(rest[:head])
    return vote.view(torch.float32), Pairs(indices, form.decode(rest[head : head + num_bytes], count))


def pack_range(pairs: Pairs, start: int, stop: int, wire: str = wires.default) -> tuple[Tensor, Pairs]:
    """Code a range as pairs, or as every element if that takes fewer bytes.

    Args:
        pairs: Elements in ``start .. stop-1``.
        start: First element of the range.
        stop: End of the range.
        wire: Value format.

    Returns:
        The message (uint8), and the rounding errors as pairs.
    """
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


def write_range_mean(message: Tensor, out: Tensor, start: int, scale: float, wire: str = wires.default) -> None:
    """Write ``scale`` times the range that `pack_range` coded to ``out``.

    Args:
        message: uint8.
        out: float32, the range's elements.
        start: First element of the range.
        scale: Factor of the values.
        wire: Value format.
    """
    kind, data = int(message[:4].view(torch.int32).item()), message[4:]
    if kind == _FILLED:
        form = format_of(wire)
        values = form.decode(data[: form.num_bytes(out.numel())], out.numel())
        kernels.scale_into(values, out, scale)
    else:
        pairs = Pairs.decoded(data, wire)
        kernels.scatter_mean(out, [(pairs.indices - start, pairs.values)], scale)
