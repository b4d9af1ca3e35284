"""Spar-All-Gather: the ranks of d teams that hold the sum of the same block add theirs up (SparDL, section 3.3).

What the sum has beyond the L largest is dropped on all of those ranks alike. Where a later sum may have the element
again, each gives back its share of what was dropped; else every rank has the element in its residual as it was, which
is the same in all. Pairs count from the block's first element.

How much of a block each team sends in B-SAG is SparDL's h, found while training (Algorithm 2). d teams send h elements
each of the same block; where they select alike, fewer than d h are left of the sum, which should hold L. So h lies
between L / d and L, and follows the number of elements that the last sum had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from trimtab.transport.base import Transport
from trimtab.transport.primitives import all_gather, chain_length
from trimtab.wire import index_code
from trimtab.wire.messages import pack, unpack
from trimtab.wire.pairs import Pairs, added, strongest

#: Takes what was dropped of a sum, whose values are this rank's share already.
GiveBack = Callable[[Pairs], None]
#: Rounds pairs that so many ranks hold alike, for sending: their values (uint8), and the pairs as they are read.
Rounded = Callable[[Pairs, int], tuple[Tensor, Pairs]]
#: The first step of h, as a share of the way from L / d to L.
_FIRST_STEP = 0.01


@dataclass(frozen=True)
class SummedBlock:
    """The sum of a block over the teams, the same bits on each of the ranks that hold it."""

    pairs: Pairs
    vote: Tensor
    """The sum of the votes."""
    num_merged: int
    """Elements of the sum before any were dropped."""
    num_messages: int
    """Length of the longest chain of messages."""


def recursive_doubling(
    teams: Transport, pairs: Pairs, vote: Tensor, most: int, give_back: GiveBack, rounded: Rounded, wire: str
) -> SummedBlock:
    """R-SAG, for d = 2^i: pairs of teams at doubling distance exchange all they have, and keep ``most`` each time.

    ``teams`` are the ranks that hold the block, one a team. After a round twice as many hold the same sum.
    """
    num_merged = pairs.values.numel()
    for round in range(chain_length(teams.size)):
        peer = teams.rank ^ (1 << round)
        values, pairs = rounded(pairs, 1 << round)
        teams.send(peer, pack(vote, index_code.encode(pairs.indices), values))
        other_vote, other = unpack(teams.receive_bytes(peer), vote.numel(), wire)
        vote = vote + other_vote
        sums = added([pairs, other])
        num_merged = sums.values.numel()
        pairs, dropped = strongest(sums, most)
        give_back(Pairs(dropped.indices, dropped.values / (2 << round)))
    return SummedBlock(pairs, vote, num_merged, chain_length(teams.size))


def bruck(teams: Transport, pairs: Pairs, vote: Tensor, most: int, rounded: Rounded, wire: str) -> SummedBlock:
    """B-SAG, for any d: Bruck's all-gather of what each team has, added in the teams' order, of which ``most`` stay."""
    message = pack(vote, index_code.encode(pairs.indices), rounded(pairs, 1)[0])
    messages, num_messages = all_gather(teams, message)
    parts = [unpack(each, vote.numel(), wire) for each in messages]
    sums = added([part for _, part in parts])
    total_vote = sum((each for each, _ in parts[1:]), start=parts[0][0])
    return SummedBlock(strongest(sums, most)[0], total_vote, sums.values.numel(), num_messages)


@dataclass(frozen=True)
class SagShare:
    """h and its next step as shares of L, which a change of ratio, of fusion plan or of ranks leaves as they are."""

    share: float
    """h / L, between 1 / d and 1."""
    step: float
    """What is added to it after the next sum; at most the width of that range, in either direction."""
    has_agreed: bool = False
    """Whether the last sum called for a step in the direction of the one before: on the second, the step doubles."""

    @classmethod
    def of_teams(cls, d: int) -> SagShare:
        """Where training begins: h = L / d, as if no two teams selected alike."""
        return cls(1 / d, _FIRST_STEP * (d - 1) / d)

    def elements(self, most: int) -> int:
        """h, of which L is ``most``: at least one."""
        return max(1, round(self.share * most))

    def after(self, num_merged: int, most: int, d: int) -> SagShare:
        """What is next, when the sum over ``d`` teams had ``num_merged`` elements and should have ``most``, L.

        As in Algorithm 2 the step changes its sign, and halves, where the sum grew past L by a step upwards or fell
        short of it by one downwards; the paper's text says the opposite.
        """
        step, has_agreed = self.step, False
        if (num_merged > most) != (step > 0):
            step, has_agreed = (2 * step, False) if self.has_agreed else (step, True)
        else:
            step = -step / 2
        size = min((d - 1) / d, max(1 / most, abs(step)))
        step = size if step > 0 else -size
        return SagShare(min(1.0, max(1 / d, self.share + step)), step, has_agreed)


def of_largest_overlap(
    held: Mapping[tuple[int, int], SagShare], ranges: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], SagShare]:
    """For each of the new ``ranges``, what was held of the old range that shares most elements with it, if any."""

    def overlap(one: tuple[int, int], other: tuple[int, int]) -> int:
        return min(one[1], other[1]) - max(one[0], other[0])

    found: dict[tuple[int, int], SagShare] = {}
    for start, end in ranges:
        nearest = max(held, key=lambda old: overlap(old, (start, end)), default=None)
        if nearest is not None and overlap(nearest, (start, end)) > 0:
            found[start, end] = held[nearest]
    return found
