"""Ok-Topk: a sparse reduce-scatter over balanced regions, and an all-gather of the k largest sums of all.

Li & Hoefler, PPoPP 2022, section 3 and Algorithm 1. Each rank sums the selections of all in a region of its own. Sums
that reach a global threshold are sent to all. Every `ESTIMATE_EVERY` steps the threshold is estimated anew, by a
histogram of all sums; every `REGIONS_EVERY` steps the regions' bounds are the mean of those that would split each
rank's selection evenly. Both travel with the counts that every step gathers.

Cost (SparDL's Table I): between 2 and 6 (N-1)/N M c bytes, less what coding saves of the indices, and 2 (N + log2 N)
messages one after another. Here the N-1 messages to the owners of regions leave at once, so that 1 + 2 log2 N follow
one another, and one more where the sums lie too unevenly to be gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from trimtab_api.catalogue import wires

from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared, Ranges
from trimtab.collectives.sparse_parts import OwnSelection, reduce_scatter
from trimtab.papers.ok_topk.global_threshold import Shares, histogram, shares_by_histogram, shares_by_threshold
from trimtab.transport.group import Group
from trimtab.transport.primitives import all_gather, all_to_all
from trimtab.wire import pairs as sparse_pairs
from trimtab.wire.pairs import Pairs

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selector
    from trimtab.transport.base import Transport

#: Steps between two estimates of the global threshold, and between two changes of the regions (the published code's).
ESTIMATE_EVERY, REGIONS_EVERY = 32, 64
#: At most this many times k of the sums that reach the threshold are sent on.
MOST_SENT = 1.25
#: If a rank would send more than this many times the mean, sums are first passed to ranks that would send fewer.
BALANCE_ABOVE = 2.0


@dataclass(frozen=True)
class RangeState:
    """State that one buffer's exchange carries to the next step, the same on every rank."""

    bounds: tuple[int, ...]
    """The region of rank r is ``bounds[r] .. bounds[r+1] - 1``, relative to the buffer."""
    k: int = 0
    threshold: float = 0.0
    age: int = 0
    """Steps since the state began; with another k it begins anew."""

    @classmethod
    def even(cls, n: int, num_ranks: int) -> RangeState:
        """Return the state of a buffer of n elements that has none: even regions."""
        return cls(tuple(rank * n // num_ranks for rank in range(num_ranks + 1)))


class OkTopk(Collective):
    """The update has about k elements: of those that a rank selected, the largest sums over the ranks that did.

    A rank clears what it sent only if the sum was sent on; the ranks keep what was dropped of theirs. That is the
    published rule, and no sum is dropped half way, so nothing is lost. The rank that rounds values keeps the rounding
    errors.

    Where k is chosen per tensor, each region also sends on its largest sum of each tensor. That rule is not the
    paper's.
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        sparse_pairs.warm_up()
        self._state: dict[tuple[int, int], RangeState] = {}
        self._proposed: dict[tuple[int, int], RangeState] = {}
        """Both by a buffer's first element in the flat buffers, and its length."""

    def prepare(self, exchange: Exchange, selector: Selector | None) -> OwnSelection:
        """Select on this rank."""
        return OwnSelection.taken(exchange, selector)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Reduce selections by regions, choose the k largest sums, and gather them (Algorithm 1)."""
        assert isinstance(prepared, OwnSelection)
        own, timer, num_bytes = prepared.pairs, prepared.timer, transport.num_bytes
        timer.resume()
        key = (exchange.start, exchange.out.numel())
        state = self._state_of(key, sum(exchange.k))

        wire = exchange.wire
        sums, lost, num_messages = reduce_scatter(transport, own, state.bounds, wire)
        timer.communicated()
        magnitudes = sums.values.abs()
        estimates, moves = state.age % ESTIMATE_EVERY == 0, state.age % REGIONS_EVERY == 0
        reaching = magnitudes >= state.threshold
        exempt = sparse_pairs.exempt(sums, exchange.segments)
        reaching[exempt] = True
        report = histogram(magnitudes, state.k).coded() if estimates else (reaching.sum(dtype=torch.int32).view(1),)
        proposal = _even_bounds(own, transport.size) if moves else own.indices[:0]
        num_exempt = proposal.new_full((1,), exempt.numel())
        message = torch.cat([part.view(torch.uint8) for part in (vote, num_exempt, proposal, *report)])
        timer.compressed()
        messages, length = all_gather(transport, message)
        num_messages += length
        timer.communicated()

        lengths = [4 * part.numel() for part in (vote, num_exempt, proposal)]
        heads = [message.split([*lengths, message.numel() - sum(lengths)]) for message in messages]
        votes, least, proposals, reports = zip(*heads, strict=True)
        vote = torch.stack([each.view(torch.float32) for each in votes]).sum(0)
        if estimates:
            shares = shares_by_histogram([Pairs.decoded(coded) for coded in reports], state.k)
        else:
            counts = [int(count.view(torch.int32).item()) for count in reports]
            shares = shares_by_threshold(counts, state.threshold, state.k, max(1, round(MOST_SENT * state.k)))
            sums = sums.only(reaching)
        shares = shares.at_least([int(count.view(torch.int32).item()) for count in least])
        bounds = (0, *_mean_bounds(proposals), key[1]) if moves else state.bounds
        self._proposed[key] = replace(state, bounds=bounds, threshold=shares.threshold, age=state.age + 1)
        winners, _ = sparse_pairs.strongest(sums, shares.of_rank[transport.rank], exchange.segments)
        kept = 0.0
        timer.compressed()

        if max(shares.of_rank) * transport.size > BALANCE_ABOVE * shares.total:
            winners, passing, length = _balanced(transport, winners, shares, wire)
            kept = sparse_pairs.keep(exchange.next_residual, passing)
            num_messages += length
        winners, rounding = winners.rounded(wire)
        messages, length = all_gather(transport, torch.cat([part.view(torch.uint8) for part in winners.coded(wire)]))
        num_messages += length
        timer.communicated()

        everywhere = sparse_pairs.joined([Pairs.decoded(message, wire) for message in messages])
        kernels.scatter_mean(exchange.out, [(everywhere.indices, everywhere.values)], 1 / transport.size)
        is_sent = sparse_pairs.contained(own.indices, everywhere.indices)
        lost = lost.only(sparse_pairs.contained(lost.indices, everywhere.indices))  # of the others all is kept
        for kept_pairs in (own.only(~is_sent), lost, rounding):
            kept += sparse_pairs.keep(exchange.next_residual, kept_pairs)
        timer.compressed()
        return Exchanged(
            sent=own.indices[is_sent],
            num_selected=len(own),
            squared_norm_before=prepared.squared_norm_before,
            squared_norm_after=max(0.0, prepared.squared_norm_after + kept),
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=num_messages,
            vote=vote,
            compress_seconds=timer.compress_seconds,
            collective_seconds=timer.collective_seconds,
        )

    def commit(self) -> None:
        """See `Collective.commit`."""
        self._state.update(self._proposed)
        self._proposed = {}

    def discard(self) -> None:
        """See `Collective.discard`."""
        self._proposed = {}

    def state_dict(self) -> dict[str, Any]:
        """Return ``ranges``: ``[first element, length, k, threshold, age, bounds]`` each."""
        return {
            "ranges": [
                [*key, state.k, state.threshold, state.age, list(state.bounds)] for key, state in self._state.items()
            ]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Collective.load_state_dict`; state of another number of ranks is left out."""
        self._proposed = {}
        self._state = {
            (first, length): RangeState(tuple(bounds), k, threshold, age)
            for first, length, k, threshold, age, bounds in state["ranges"]
            if len(bounds) == self.group.size + 1
        }

    def rebucket(self, old: Ranges, new: Ranges) -> None:
        """See `Collective.rebucket`: a new buffer's regions hold as much as the old ones; its threshold is new."""
        del old  # the state says what it is of
        density = _density(self._state)
        state = {}
        for start, stop in new:
            key = (start, stop - start)
            if key in self._state:
                state[key] = self._state[key]
            elif density is not None and density[0][0] <= start and stop <= density[0][-1]:
                state[key] = RangeState(_bounds_of_equal_mass(density, start, stop, self.group.size))
        self._state = state

    def _state_of(self, key: tuple[int, int], k: int) -> RangeState:
        state = self._state.get(key) or RangeState.even(key[1], self.group.size)
        return state if state.k == k else RangeState(state.bounds, k)


def _even_bounds(own: Pairs, num_ranks: int) -> Tensor:
    """Return the bounds that cut this rank's selection into as many parts of equal count: int32 [N - 1]."""
    places = [part * len(own) // num_ranks for part in range(1, num_ranks)]
    return own.indices[places]


def _mean_bounds(proposals: Sequence[Tensor]) -> list[int]:
    bounds = torch.stack([each.view(torch.int32) for each in proposals])
    return (bounds.sum(0, dtype=torch.int64) // len(proposals)).tolist()


def _balanced(transport: Transport, winners: Pairs, shares: Shares, wire: str) -> tuple[Pairs, Pairs, int]:
    """Pass sums between neighbours so that each rank has as many, still in order.

    Returns:
        This rank's sums, the rounding errors of those that it passed on, and the messages of the longest chain.
    """
    total, size = shares.total, transport.size
    first = sum(shares.of_rank[: transport.rank])
    ends = [rank * total // size - first for rank in range(size + 1)]
    places = [min(max(0, end), len(winners)) for end in ends]
    rank, parts = transport.rank, [winners.only(slice(low, high)) for low, high in pairwise(places)]
    passed = [part.rounded(wires.default if peer == rank else wire) for peer, part in enumerate(parts)]
    received, num_messages = all_to_all(
        transport, [part.coded(wire) if len(part) and peer != rank else () for peer, (part, _) in enumerate(passed)]
    )
    got = [parts[peer] if peer == rank else _or_none(message, wire) for peer, message in enumerate(received)]
    sums = sparse_pairs.joined([part for part in got if part is not None])
    return sums, sparse_pairs.joined([lost for _, lost in passed]), num_messages


def _or_none(message: Tensor, wire: str) -> Pairs | None:
    return Pairs.decoded(message, wire) if message.numel() else None


#: Positions in the flat buffers, and how much of what is selected lies before each.
_Density = tuple[list[float], list[float]]


def _density(states: dict[tuple[int, int], RangeState]) -> _Density | None:
    """Return the density of selections over consecutive buffers; None if they do not follow one another."""
    positions, masses = [0.0], [0.0]
    for (start, length), state in sorted(states.items()):
        if start != positions[-1]:
            return None
        share = state.k / (len(state.bounds) - 1)
        positions += [float(start + bound) for bound in (*state.bounds[1:-1], length)]
        masses += [masses[-1] + share * part for part in range(1, len(state.bounds))]
    return positions, masses


def _bounds_of_equal_mass(density: _Density, start: int, stop: int, num_ranks: int) -> tuple[int, ...]:
    positions, masses = density
    low, high = np.interp([start, stop], positions, masses)
    inner = np.interp(np.linspace(low, high, num_ranks + 1)[1:-1], masses, positions)
    return (0, *(int(min(max(position - start, 0), stop - start)) for position in inner), stop - start)
