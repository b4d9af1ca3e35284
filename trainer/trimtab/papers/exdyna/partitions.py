"""ExDyna's blocks, and partitions of them (sections IV-A and IV-B).

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
    """N + 1 block numbers that do not decrease: partition p holds blocks ``first_blocks[p]`` to ``[p + 1] - 1``.

    If there are fewer blocks than ranks, some partitions are empty.
    """

    @classmethod
    def even(cls, num_elements: int, num_ranks: int) -> Partitions:
        """Give each partition as many blocks, the first ones one more if they do not come out even (Algorithm 2)."""
        num_blocks = -(-num_elements // block_size(num_elements))
        each, more = divmod(num_blocks, num_ranks)
        return cls(num_elements, tuple(each * p + min(p, more) for p in range(num_ranks + 1)))

    def span(self, partition: int) -> tuple[int, int]:
        """Return the first element of a partition, and the one after its last."""
        size = block_size(self.num_elements)
        first, end = self.first_blocks[partition : partition + 2]
        return min(first * size, self.num_elements), min(end * size, self.num_elements)

    def quota(self, k: int, partition: int) -> int:
        """Return the partition's part of k elements; partitions that are not empty share them evenly."""
        filled = [p for p in range(len(self.first_blocks) - 1) if self.first_blocks[p] < self.first_blocks[p + 1]]
        if partition not in filled:
            return 0
        each, more = divmod(k, len(filled))
        return each + (filled.index(partition) < more)

    def balanced(self, counts: Sequence[float]) -> tuple[Partitions, tuple[float, ...]]:
        """Move a block between neighbours if one selected more than the other (Algorithm 3).

        Args:
            counts: Elements selected in each partition.

        Returns:
            The new partitions, and the counts expected of them, if each block holds its share of what was selected.
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
    """Return the elements of a block: the least multiple of `BLOCK_MULTIPLE` that gives at most `MAX_BLOCKS`.

    The paper rounds down, which leaves up to half of a buffer to its last block.
    """
    return BLOCK_MULTIPLE * -(-num_elements // (BLOCK_MULTIPLE * MAX_BLOCKS))


def imbalance(counts: Sequence[float]) -> float:
    """Return f(t) = N max k_i / sum k_i (equation 5); 1 if nothing is selected."""
    total = sum(counts)
    return len(counts) * max(counts) / total if total else 1.0
