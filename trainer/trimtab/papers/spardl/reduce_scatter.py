"""Spar-Reduce-Scatter: each rank ends with the sparse sum of one block (SparDL, section 3.1, Algorithm 1).

P ranks cut the vector into P blocks, and rank p is to hold block p. The blocks after it, around the circle, go into
bags of 1, 2, 4, ... blocks, the last of which takes what is left. Bags are sent from the last to the first, each as one
message to the rank at which its blocks begin, whose own circle begins with the same blocks: ceil(log2 P) messages for
any P. A block's k largest are selected when it is about to be sent, and not before. So nothing on the wire grows by
what other ranks have selected, and each block is selected in once. The rank that sends values keeps their rounding
errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.collectives.base import Exchange
from trimtab.kernels import FlatGrad
from trimtab.papers.spardl.residual_log import ResidualLog
from trimtab.sparsifiers.base import Selected, Selector
from trimtab.transport.base import Transport
from trimtab.transport.primitives import chain_length
from trimtab.transport.timer import LapTimer
from trimtab.wire import index_code
from trimtab.wire.messages import pack, unpack
from trimtab.wire.pairs import Pairs, joined
from trimtab.wire.value_formats import format_of

#: Message of several blocks: coded indices and values (both uint8).
Bag = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Blocks:
    """A vector in ``count`` blocks, with segments in each of which elements are to be selected.

    One segment is the paper's rule: each block's share of k. With more, each part of a segment that lies in a block has
    its share of the segment's k.
    """

    segments: tuple[int, ...]
    """Offsets of the segments, from 0 to n."""
    ks: tuple[int, ...]
    """Elements to select in each segment."""
    count: int

    @property
    def n(self) -> int:
        """Elements of the vector."""
        return self.segments[-1]

    def start(self, block: int) -> int:
        """Return the block's first element; blocks are numbered around the circle."""
        return block % self.count * self.n // self.count

    def length(self, block: int) -> int:
        """Return the block's elements; some blocks have none if there are fewer elements than blocks."""
        return (block % self.count + 1) * self.n // self.count - self.start(block)

    def elements(self, block: int) -> int:
        """Return the elements to select in the block: at least one of each segment that has any there."""
        return sum(self.parts(block)[1])

    def parts(self, block: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the block's parts, each of one segment.

        Returns:
            Offsets of the parts, from 0 to the block's length; and the elements to select in each.
        """
        block %= self.count
        first, length = self.start(block), self.length(block)
        offsets, ks = [0], []
        for start, end, k in zip(self.segments[:-1], self.segments[1:], self.ks, strict=True):
            low, high = max(start, first), min(end, first + length)
            if low < high:
                offsets.append(high - first)
                share = (high - start) * k // (end - start) - (low - start) * k // (end - start)
                ks.append(min(high - low, max(1, share)))
        return tuple(offsets), tuple(ks)


class BlockSelector:
    """Selects in blocks of ``acc`` (float32 [n]), from ``start`` of the flat buffers; each block once a step."""

    def __init__(self, acc: Tensor, start: int, blocks: Blocks, selector: Selector, wire: str) -> None:
        """Prepare to select in ``acc``.

        Args:
            acc: float32 [n].
            start: First element of ``acc`` in the flat buffers.
            blocks: The blocks of ``acc``.
            selector: The sparsifier.
            wire: Value format in which values are sent; rounding errors stay in ``acc``.
        """
        self.blocks, self.wire = blocks, wire
        self.log = ResidualLog(acc)
        self._acc = acc
        self._start = start
        self._selector = selector

    def take(self, block: int, k: int) -> Pairs:
        """Take k elements out of the block; the indices are those of the vector."""
        first, length = self.blocks.start(block), self.blocks.length(block)
        if length == 0:
            return Pairs(self._acc.new_empty(0, dtype=torch.int32), self._acc.new_empty(0))
        offsets, ks = self.blocks.parts(block)
        scale = k / sum(ks)
        taken = []
        for low, high, part_k in zip(offsets[:-1], offsets[1:], ks, strict=True):
            start, num = first + low, max(1, round(part_k * scale))
            found = self._selector.take(self._acc[start : first + high], num, (self._start + start, high - low))
            taken.append(self._noted(found, start))
        return joined(taken)

    def form(self, exchange: Exchange, first: int, count: int) -> tuple[float, Bag | None]:
        """Write acc, and take the bag of ``count`` blocks from ``first`` on in the same pass.

        Returns:
            Squared norm of acc, and the bag; None if it has no blocks.
        """
        squared_norm, taken = 0.0, []
        for block in range(first, first + count):
            start, length = self.blocks.start(block), self.blocks.length(block)
            if length == 0:
                continue
            grad, residual, acc = self._span(exchange, start, start + length)
            found = self._selector.compress(grad, residual, acc, *self.blocks.parts(block), self._start + start)
            squared_norm += found.squared_norm_before
            taken.append(self._noted(found, start))
        start, n = self.blocks.start(first), self.blocks.n
        end = start + sum(self.blocks.length(block) for block in range(first, first + count))
        for span in ((0, start), (end, n)) if end <= n else ((end - n, start),):
            if span[0] < span[1]:
                squared_norm += kernels.accumulate(*self._span(exchange, *span))
        return squared_norm, self._bag(first, taken) if count else None

    def rounded(self, pairs: Pairs, holders: int = 1) -> tuple[Tensor, Pairs]:
        """Round the values of pairs for sending.

        This rank keeps the rounding errors, or its share of them if ``holders`` ranks send the same pairs.

        Returns:
            The coded values (uint8), and the pairs that others read.
        """
        form = format_of(self.wire)
        coded = form.encode(pairs.values)
        if form.is_exact:
            return coded, pairs
        sent = form.decode(coded, len(pairs))
        self.log.add(Pairs(pairs.indices, (pairs.values - sent) / holders))
        return coded, Pairs(pairs.indices, sent)

    def take_bag(self, first: int, count: int) -> Bag:
        """Take the elements of ``count`` blocks, from block ``first`` on around the circle.

        Returns:
            Coded indices and values. The indices count from the first block's first element, so that they ascend across
                the
            vector's end.
        """
        taken = [self.take(block, self.blocks.elements(block)) for block in range(first, first + count)]
        return self._bag(first, taken)

    def _span(self, exchange: Exchange, start: int, end: int) -> tuple[FlatGrad, Tensor, Tensor]:
        """Return a range of gradient, residual and acc."""
        return exchange.grad[start:end], exchange.residual[start:end], self._acc[start:end]

    def _noted(self, found: Selected, first: int) -> Pairs:
        taken = Pairs(found.indices + first, found.values)
        self.log.note_taken(taken)
        return taken

    def _bag(self, first: int, taken: Sequence[Pairs]) -> Bag:
        none = Pairs(self._acc.new_empty(0, dtype=torch.int32), self._acc.new_empty(0))
        values, pairs = self.rounded(joined([none, *taken]))
        indices = self._around(pairs.indices - self.blocks.start(first))
        return index_code.encode(indices), values

    def add_bag(self, first: int, pairs: Pairs) -> None:
        """Add another rank's bag of the blocks from ``first`` on."""
        indices = self._around(pairs.indices - (self.blocks.n - self.blocks.start(first)))
        self.log.add(Pairs(indices, pairs.values))

    def _around(self, indices: Tensor) -> Tensor:
        """Count indices below 0 from the vector's end."""
        return torch.where(indices < 0, indices + self.blocks.n, indices)


def last_bag(rank: int, count: int) -> tuple[int, int]:
    """Return the first block and the number of blocks that a rank sends first; they depend on nothing received."""
    distance = 1 << max(0, chain_length(count) - 1)
    return rank + distance, count - distance


def spar_reduce_scatter(transport: Transport, selecting: BlockSelector, last: Bag | None, timer: LapTimer) -> int:
    """Add up the blocks: block p of rank p's vector becomes the sum.

    Args:
        transport: Connects the ranks of a team.
        selecting: Holds the vector.
        last: The `last_bag`, if it is taken already.
        timer: Charged with both phases.

    Returns:
        The messages of the longest chain.
    """
    rank, size = transport.rank, transport.size
    no_vote = torch.empty(0, dtype=torch.float32, device=transport.device)
    for step in reversed(range(chain_length(size))):
        distance = 1 << step
        count = min(distance, size - distance)
        bag = last if last is not None else selecting.take_bag(rank + distance, count)
        last, message = None, pack(no_vote, *bag)
        timer.compressed()
        transport.send((rank + distance) % size, message)
        received = transport.receive_bytes((rank - distance) % size)
        timer.communicated()
        selecting.add_bag(rank, unpack(received, 0, selecting.wire)[1])
    return chain_length(size)
