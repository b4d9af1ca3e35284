"""Which rank selects where, in ExDyna (sections IV-A and IV-B): blocks, partitions of them, and who gets which.

A buffer is cut into blocks, and consecutive blocks make N partitions, one for each rank. Every rank holds the same
partitions and the same counts, so all of them move the same blocks without a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: A block holds a multiple of this many elements: a warp reads it whole.
BLOCK_MULTIPLE = 32
#: A buffer has at most this many blocks.
MAX_BLOCKS = 1024
#: Between neighbours a block moves where their counts differ by more than this factor: alpha = 1.05 squared, for the
#: paper asks that one is above alpha times the mean and the other below 1/alpha of it. That alone would stop where a
#: partition near the mean lies between one above and one below it.
UNEVEN = 1.05**2
#: No partition falls below this share of the blocks that it began with.
LEAST_SHARE = 1 / 4


@dataclass(frozen=True)
class Partitions:
    """N consecutive ranges of whole blocks that cover the n elements of a buffer; the last block may be shorter."""

    num_elements: int
    first_blocks: tuple[int, ...]
    """N + 1 block numbers that do not decrease: partition p holds the blocks from the p-th to the one before the next.

    Where there are fewer blocks than ranks, some partitions are empty.
    """

    @classmethod
    def even(cls, num_elements: int, num_ranks: int) -> Partitions:
        """As many blocks for each partition, the first ones one more where they do not come out even (Algorithm 2)."""
        num_blocks = -(-num_elements // block_size(num_elements))
        each, more = divmod(num_blocks, num_ranks)
        return cls(num_elements, tuple(each * p + min(p, more) for p in range(num_ranks + 1)))

    def span(self, partition: int) -> tuple[int, int]:
        """The first element of a partition, and the one after its last."""
        size = block_size(self.num_elements)
        first, end = self.first_blocks[partition : partition + 2]
        return min(first * size, self.num_elements), min(end * size, self.num_elements)

    def quota(self, k: int, partition: int) -> int:
        """The partition's part of k elements: as many from each that is not empty."""
        filled = [p for p in range(len(self.first_blocks) - 1) if self.first_blocks[p] < self.first_blocks[p + 1]]
        if partition not in filled:
            return 0
        each, more = divmod(k, len(filled))
        return each + (filled.index(partition) < more)

    def balanced(self, counts: Sequence[float]) -> tuple[Partitions, tuple[float, ...]]:
        """Move a block between neighbours of which one selected more than the other (Algorithm 3).

        ``counts`` are the elements selected in each partition. Returns the new partitions, and the counts expected of
        them: a block is taken to hold its share of all that was selected.
        """
        num_ranks, first, expected = len(counts), list(self.first_blocks), list(counts)
        moved = block_size(self.num_elements) * sum(counts) / self.num_elements
        least = LEAST_SHARE * first[-1] / num_ranks
        for left, right in pairwise(range(num_ranks)):
            for sender, receiver, shift in ((left, right, -1), (right, left, 1)):
                is_uneven = expected[sender] > UNEVEN * expected[receiver]
                if is_uneven and first[sender + 1] - first[sender] - 1 >= least:
                    first[right] += shift
                    expected[sender] -= moved
                    expected[receiver] += moved
                    break
        return Partitions(self.num_elements, tuple(first)), tuple(max(0.0, count) for count in expected)


def block_size(num_elements: int) -> int:
    """Elements of a block: the least multiple of `BLOCK_MULTIPLE` that makes no more than `MAX_BLOCKS` of them.

    The paper rounds down, which leaves up to half of a buffer to its last block.
    """
    return BLOCK_MULTIPLE * -(-num_elements // (BLOCK_MULTIPLE * MAX_BLOCKS))


def imbalance(counts: Sequence[float]) -> float:
    """f(t) = N max k_i / sum k_i (5): what the largest selection makes of the mean one; 1 where nothing is selected."""
    total = sum(counts)
    return len(counts) * max(counts) / total if total else 1.0
