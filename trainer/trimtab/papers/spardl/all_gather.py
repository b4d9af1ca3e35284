"""Spar-All-Gather: the ranks of d teams that hold the sum of the same block add theirs up (SparDL, section 3.3).

What the sum has beyond the L largest is dropped on all of those ranks alike. Where a later sum may have the element
again, each gives back its share of what was dropped; else every rank has the element in its residual as it was, which
is the same in all. Pairs count from the block's first element.
"""

from __future__ import annotations

from collections.abc import Callable
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


@dataclass(frozen=True)
class JobConnection:
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
) -> JobConnection:
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
    return JobConnection(pairs, vote, num_merged, chain_length(teams.size))


def bruck(teams: Transport, pairs: Pairs, vote: Tensor, most: int, rounded: Rounded, wire: str) -> JobConnection:
    """B-SAG, for any d: Bruck's all-gather of what each team has, added in the teams' order, of which ``most`` stay."""
    message = pack(vote, index_code.encode(pairs.indices), rounded(pairs, 1)[0])
    messages, num_messages = all_gather(teams, message)
    parts = [unpack(each, vote.numel(), wire) for each in messages]
    sums = added([part for _, part in parts])
    total_vote = sum((each for each, _ in parts[1:]), start=parts[0][0])
    return JobConnection(strongest(sums, most)[0], total_vote, sums.values.numel(), num_messages)
