"""The classic collectives over point-to-point messages: ring, binomial tree and broadcast, Bruck, direct.

All work for any number of ranks N >= 1 and return the length of their longest chain of messages, the multiplier of the
latency alpha: 2(N-1) for the ring, 2 ceil(log2 N) for the tree, ceil(log2 N) for broadcast and all-gather (Flexible
Communication, Table I). Long messages are cut into chunks, so that a relay forwards one while the next arrives.

A vector may lie in several pieces of memory; what counts is their concatenation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from trimtab.transport.base import Transport, malformed, parted
from trimtab.transport.recursive_halving import halving_all_reduce
from trimtab.transport.rounded_vector import Rounding, Vector, vector_of


def chain_length(size: int) -> int:
    """Return ceil(log2 N): the depth of a binomial tree, and the rounds of a Bruck all-gather."""
    return (size - 1).bit_length()


def ring_all_reduce(transport: Transport, pieces: Sequence[Tensor], rounding: Rounding | None = None) -> int:
    """Sum the float32 vector ``pieces`` over the ranks in place: ring reduce-scatter, then ring all-gather.

    Each element is summed by one rank, so the bits are the same on every rank. With ``rounding``, the first piece's
    values are rounded where they cross (`RoundedVector`).
    """
    rank, size = transport.rank, transport.size
    if size == 1:
        return 0
    left, right = (rank - 1) % size, (rank + 1) % size
    num_elements = sum(piece.numel() for piece in pieces)
    vector = vector_of(transport, pieces, -(-num_elements // size), rounding)

    def chunks(block: int) -> Iterator[tuple[int, int]]:
        return vector.chunks(*share(num_elements, block, size))

    for chunk in chunks(rank):
        vector.send(right, *chunk)
    for step in range(size - 1):
        # What is summed here is what the next step sends; after the last one it is complete, and starts the all-gather.
        for chunk in chunks(rank - step - 1):
            vector.receive_and_add(left, *chunk)
            vector.send(right, *chunk)
    for step in range(size - 1):
        for chunk in chunks(rank - step):
            vector.receive(left, *chunk, to=[right] if step < size - 2 else [])
    transport.flush()
    return 2 * (size - 1)


def ring_reduce_scatter(transport: Transport, vector: Tensor) -> int:
    """Sum ``vector`` (float32 [n]) over the ranks around a ring, and leave each rank its `share` of the sum.

    Elements outside a rank's own share are overwritten.
    """
    rank, size = transport.rank, transport.size
    if size == 1:
        return 0
    left, right = (rank - 1) % size, (rank + 1) % size
    pieces = Vector(transport, [vector], -(-vector.numel() // size))
    for chunk in pieces.chunks(*share(vector.numel(), rank - 1, size)):
        pieces.send(right, *chunk)
    for step in range(size - 1):
        for chunk in pieces.chunks(*share(vector.numel(), rank - step - 2, size)):
            pieces.receive_and_add(left, *chunk)
            if step < size - 2:
                pieces.send(right, *chunk)
    transport.flush()
    return size - 1


def ring_all_gather(transport: Transport, vector: Tensor) -> int:
    """Give every rank each rank's `share` of ``vector`` (float32 [n]), in place, around a ring."""
    rank, size = transport.rank, transport.size
    if size == 1:
        return 0
    left, right = (rank - 1) % size, (rank + 1) % size
    pieces = Vector(transport, [vector], 0)
    for chunk in pieces.chunks(*share(vector.numel(), rank, size)):
        pieces.send(right, *chunk)
    for step in range(size - 1):
        for chunk in pieces.chunks(*share(vector.numel(), rank - step - 1, size)):
            pieces.receive(left, *chunk, to=[right] if step < size - 2 else [])
    transport.flush()
    return size - 1


def share(num_elements: int, rank: int, size: int) -> tuple[int, int]:
    """Return first element and end of a rank's part if ``size`` ranks share so many; ranks count round and round."""
    rank %= size
    return rank * num_elements // size, (rank + 1) * num_elements // size


def tree_all_reduce(transport: Transport, pieces: Sequence[Tensor], rounding: Rounding | None = None) -> int:
    """Sum the float32 vector ``pieces`` over the ranks in place: binomial reduce to rank 0, then binomial broadcast.

    Rank 0 sends each chunk on as soon as it is summed, so that the two halves overlap where a link is full duplex.
    With ``rounding``, the first piece's values are rounded where they cross (`RoundedVector`).
    """
    size = transport.size
    if size == 1:
        return 0
    parent, children = binomial_tree(transport.rank, size)
    num_elements = sum(piece.numel() for piece in pieces)
    vector = vector_of(transport, pieces, num_elements, rounding)
    for chunk in vector.chunks(0, num_elements):
        for child in reversed(children):  # the shallowest subtree is ready first
            vector.receive_and_add(child, *chunk)
        for peer in children if parent is None else [parent]:
            vector.send(peer, *chunk)
    if parent is not None:
        for chunk in vector.chunks(0, num_elements):
            vector.receive(parent, *chunk, to=children)
    transport.flush()
    return 2 * chain_length(size)


def all_reduce(transport: Transport, shape: str, pieces: Sequence[Tensor], rounding: Rounding | None = None) -> int:
    """Sum the float32 vector ``pieces`` over the ranks in place, by ``shape`` (of `ALL_REDUCE`).

    A transport that has an all-reduce of its own (NCCL's) chooses the shape by itself. With ``rounding`` it is not
    used, because it would sum what is rounded, not in float32.
    """
    if transport.has_own_all_reduce and rounding is None:
        transport.all_reduce(pieces)
        return 2 * (transport.size - 1 if shape == "ring" else chain_length(transport.size))
    return ALL_REDUCE[shape](transport, pieces, rounding)


#: By shape.
ALL_REDUCE: dict[str, Callable[[Transport, Sequence[Tensor], Rounding | None], int]] = {
    "ring": ring_all_reduce,
    "tree": tree_all_reduce,
    "halving": halving_all_reduce,
}


def broadcast(transport: Transport, data: Tensor | None, root: int) -> tuple[Tensor, int]:
    """Send rank ``root``'s data to every rank, by a binomial tree.

    Args:
        transport: Connects the ranks.
        data: uint8 [m], given on ``root`` alone; the others need not know m.
        root: The sender.

    Returns:
        The data, on every rank, and the messages of the longest chain.
    """
    rank, size = transport.rank, transport.size
    parent, children = binomial_tree((rank - root) % size, size)
    peers = [(child + root) % size for child in children]
    chunk = transport.chunk_bytes
    if parent is None:
        assert data is not None, "the root has what is broadcast"
        length = torch.tensor([data.numel()], dtype=torch.int64, device=data.device).view(torch.uint8)
        for peer in peers:
            transport.send(peer, length, data[:chunk])
        for start in range(chunk, data.numel(), chunk):
            for peer in peers:
                transport.send(peer, data[start : start + chunk])
    else:
        source = (parent + root) % size
        first = transport.receive_bytes(source)  # the length, and the first chunk
        for peer in peers:
            transport.send(peer, first)
        length, first = first[:8], first[8:]
        num_bytes = int(length.clone().view(torch.int64).item()) if length.numel() == 8 else -1
        if first.numel() != min(num_bytes, chunk):
            raise malformed(source, f"{first.numel()} bytes as the first of {num_bytes}")
        data = first
        if num_bytes > first.numel():
            data = first.new_empty(num_bytes)
            data[:chunk] = first
            for start in range(chunk, num_bytes, chunk):
                part = data[start : start + chunk]
                transport.receive(source, part)
                for peer in peers:
                    transport.send(peer, part)
    transport.flush()
    return data, chain_length(size)


def all_gather(transport: Transport, data: Tensor) -> tuple[list[Tensor], int]:
    """Give every rank the ``data`` of all, in Bruck's rounds.

    In round r a rank sends the first 2^r of the blocks it holds 2^r ranks down, and gets as many from 2^r ranks up; the
    last round sends only what is missing.

    Args:
        transport: Connects the ranks.
        data: uint8 [m]; m may differ between ranks.

    Returns:
        The blocks in rank order, and the messages of the longest chain. Blocks whose sizes are multiples of 4 stay
            aligned
        to 4 bytes.
    """
    rank, size = transport.rank, transport.size
    blocks = [data]  # blocks[i] is that of rank + i
    distance = 1
    while distance < size:
        count = min(distance, size - distance)
        outgoing = blocks[:count]
        lengths = torch.tensor([block.numel() for block in outgoing], dtype=torch.int64, device=data.device)
        transport.send((rank - distance) % size, lengths, *outgoing)
        received = transport.receive_bytes((rank + distance) % size)
        blocks += parted(received, count, (rank + distance) % size)
        distance *= 2
    transport.flush()
    return [blocks[(peer - rank) % size] for peer in range(size)], chain_length(size)


def all_to_all(transport: Transport, messages: Sequence[Sequence[Tensor]]) -> tuple[list[Tensor], int]:
    """Send every other rank its own of the ``messages``, all at once.

    Args:
        transport: Connects the ranks.
        messages: By rank, each in parts; this rank's own is left out.

    Returns:
        What each rank sent this one (uint8, of any size), and the messages of the longest chain: 1.
    """
    rank, size = transport.rank, transport.size
    received = [torch.empty(0, dtype=torch.uint8, device=transport.device)] * size
    for distance in range(1, size):
        peer = (rank + distance) % size
        transport.send(peer, *messages[peer])
    for distance in range(1, size):
        source = (rank - distance) % size
        received[source] = transport.receive_bytes(source)
    transport.flush()
    return received, min(1, size - 1)


def binomial_tree(rank: int, size: int) -> tuple[int | None, list[int]]:
    """Return parent (None at rank 0) and children, deepest subtree first, of ``rank`` in the tree rooted at 0."""
    lowest = rank & -rank if rank else 1 << chain_length(size)
    children = [rank + (1 << bit) for bit in reversed(range(lowest.bit_length() - 1))]
    return (rank - lowest if rank else None), [child for child in children if child < size]
