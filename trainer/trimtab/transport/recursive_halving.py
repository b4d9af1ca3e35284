"""Recursive halving and doubling: in each round ranks exchange in pairs, at half or twice the last round's distance.

It works for any N. If N is no power of two, the ranks beyond the largest one in it first hand what they have to a rank
below, and get the result from it at the end: two messages more.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.transport.base import Transport, parted
from trimtab.transport.rounded_vector import Rounding, vector_of


def core_of(size: int) -> int:
    """Return the largest power of two in ``size``: the number of ranks that exchange in pairs."""
    return 1 << (size.bit_length() - 1)


def _chain(rounds: int, size: int) -> int:
    return rounds * (core_of(size).bit_length() - 1) + (2 if size != core_of(size) else 0)


def halving_all_reduce(transport: Transport, pieces: Sequence[Tensor], rounding: Rounding | None = None) -> int:
    """Sum the float32 vector ``pieces`` over the ranks in place: reduce-scatter by halving, all-gather by doubling.

    If N is a power of two, it sends as few bytes as a ring and as few messages as a tree; else the vector crosses twice
    more. Each element is summed by one rank, so the bits are the same on every rank.

    Args:
        transport: Connects the ranks.
        pieces: The vector.
        rounding: Rounds the first piece's values where they cross (`RoundedVector`), by a format that rounds each value
            by
        itself: what is sent on is cut otherwise than it came.

    Returns:
        The messages of the longest chain.
    """
    rank, size = transport.rank, transport.size
    if size == 1:
        return 0
    core = core_of(size)
    num_elements = sum(piece.numel() for piece in pieces)
    vector = vector_of(transport, pieces, num_elements, rounding)

    def send(peer: int, low: int, high: int) -> None:
        for chunk in vector.chunks(low * num_elements // core, high * num_elements // core):
            vector.send(peer, *chunk)

    def receive(peer: int, low: int, high: int, *, adds: bool) -> None:
        for chunk in vector.chunks(low * num_elements // core, high * num_elements // core):
            (vector.receive_and_add if adds else vector.receive)(peer, *chunk)

    if rank >= core:
        send(rank - core, 0, core)
        receive(rank - core, 0, core, adds=False)
        transport.flush()
        return _chain(2, size)
    has_partner = rank + core < size
    if has_partner:
        receive(rank + core, 0, core, adds=True)
    low, distance = 0, core // 2
    while distance:
        peer, kept = rank ^ distance, low + (rank & distance)
        send(peer, low + (distance - (rank & distance)), low + (distance - (rank & distance)) + distance)
        receive(peer, kept, kept + distance, adds=True)
        low, distance = kept, distance // 2
    distance = 1
    while distance < core:
        peer = rank ^ distance
        send(peer, low, low + distance)
        receive(peer, low ^ distance, (low ^ distance) + distance, adds=False)
        low, distance = low & ~distance, 2 * distance
    if has_partner:
        send(rank + core, 0, core)
    transport.flush()
    return _chain(2, size)


def doubling_all_gather(transport: Transport, data: Tensor) -> tuple[list[Tensor], int]:
    """Give every rank the ``data`` of all, in rank order, by recursive doubling; see `all_gather`."""
    rank, size = transport.rank, transport.size
    core = core_of(size)
    blocks = {rank: data}

    def send(peer: int) -> None:
        outgoing = [blocks[owner] for owner in sorted(blocks)]
        lengths = torch.tensor([block.numel() for block in outgoing], dtype=torch.int64, device=data.device)
        transport.send(peer, lengths, *outgoing)

    def receive(peer: int, owners: Sequence[int]) -> None:
        parts = parted(transport.receive_bytes(peer), len(owners), peer)
        blocks.update(zip(owners, parts, strict=True))

    if rank >= core:
        send(rank - core)
        transport.flush()  # the answer comes after all of it has arrived
        receive(rank - core, range(size))
    else:
        if rank + core < size:
            receive(rank + core, [rank + core])
        distance = 1
        while distance < core:
            first = (rank ^ distance) & ~(distance - 1)
            nearby = range(first, first + distance)
            send(rank ^ distance)
            receive(rank ^ distance, [*nearby, *(owner + core for owner in nearby if owner + core < size)])
            distance *= 2
        if rank + core < size:
            send(rank + core)
    transport.flush()
    return [blocks[owner] for owner in range(size)], _chain(1, size)
