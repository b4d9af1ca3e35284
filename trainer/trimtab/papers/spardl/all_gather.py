"""Spar-All-Gather: the ranks of d teams that hold the sum of the same block add theirs up (SparDL, section 3.3).

All of these ranks drop alike what the sum has beyond the L largest. If a later sum may have the element again, each
gives back its share of what was dropped. Else every rank has the element in its residual as it was. Pairs count from
the block's first element.

In B-SAG each team sends SparDL's h elements of a block, found while training (Algorithm 2). If teams select alike,
fewer than d h elements are left of the sum, which should hold L. So h lies between L / d and L, and follows the number
of elements that the last sum had.
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
    teams: Transport,
    pairs: Pairs,
    vote: Tensor,
    most: int,
    give_back: GiveBack,
    rounded: Rounded,
    wire: str,
    parts: Sequence[int] = (),
) -> SummedBlock:
    """Add up a block by R-SAG, for d = 2^i: pairs of teams at doubling distance exchange all they have.

    After a round twice as many ranks hold the same sum.

    Args:
        teams: The ranks that hold the block, one a team.
        pairs: This rank's sum of the block.
        vote: float32 [v], added up along the way.
        most: L: elements that are kept after each round.
        give_back: Takes this rank's share of what was dropped.
        rounded: Rounds pairs for sending.
        wire: Value format.
        parts: Offsets of parts of the block, of each of which the largest sum is kept.
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
        pairs, dropped = strongest(sums, most, parts)
        give_back(Pairs(dropped.indices, dropped.values / (2 << round)))
    return SummedBlock(pairs, vote, num_merged, chain_length(teams.size))


def bruck(
    teams: Transport, pairs: Pairs, vote: Tensor, most: int, rounded: Rounded, wire: str, parts: Sequence[int] = ()
) -> SummedBlock:
    """Add up a block by B-SAG, for any d: Bruck's all-gather of what each team has, added in the teams' order.

    Arguments are those of `recursive_doubling`; ``most`` elements of the sum are kept.
    """
    message = pack(vote, index_code.encode(pairs.indices), rounded(pairs, 1)[0])
    messages, num_messages = all_gather(teams, message)
    of_teams = [unpack(received, vote.numel(), wire) for received in messages]
    sums = added([block for _, block in of_teams])
    total_vote = sum((team_vote for team_vote, _ in of_teams[1:]), start=of_teams[0][0])
    return SummedBlock(strongest(sums, most, parts)[0], total_vote, sums.values.numel(), num_messages)


@dataclass(frozen=True)
class SagShare:
    """h and its next step as shares of L, so that they survive a change of ratio, of fusion plan or of ranks."""

    share: float
    """h / L, between 1 / d and 1."""
    step: float
    """Added to the share after the next sum; at most the width of its range, in either direction."""
    has_agreed: bool = False
    """True if the last sum called for a step in the same direction as the one before; a second doubles the step."""

    @classmethod
    def of_teams(cls, d: int) -> SagShare:
        """Return the share that training begins with: h = L / d, as if no two teams selected alike."""
        return cls(1 / d, _FIRST_STEP * (d - 1) / d)

    def elements(self, most: int) -> int:
        """Return h for L = ``most``: at least one."""
        return max(1, round(self.share * most))

    def after(self, num_merged: int, most: int, d: int) -> SagShare:
        """Return the next share, after a sum over ``d`` teams that had ``num_merged`` elements (Algorithm 2).

        The sum should have ``most`` elements, L. As in Algorithm 2 the step changes its sign, and halves, if the sum
        grew past L by a step upwards or fell short of it by one downwards; the paper's text says the opposite.
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
    """Return for each of the new ``ranges`` the share of the old range that overlaps it most, if any does."""

    def overlap(one: tuple[int, int], other: tuple[int, int]) -> int:
        return min(one[1], other[1]) - max(one[0], other[0])

    found: dict[tuple[int, int], SagShare] = {}
    for start, end in ranges:
        nearest = max(held, key=lambda old: overlap(old, (start, end)), default=None)
        if nearest is not None and overlap(nearest, (start, end)) > 0:
            found[start, end] = held[nearest]
    return found
