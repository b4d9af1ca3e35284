"""SparDL: blocks are summed sparsely on the way, and selected in again before they are sent on (Zhao et al., 2023).

Spar-Reduce-Scatter within each of d teams, Spar-All-Gather between the ranks of the teams that hold the same block, and
Bruck's all-gather within each team. Cost: equations 3 (one team), 5 (R-SAG) and 7 (B-SAG), less what coding saves of
the indices, whichever elements the ranks select.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared, Ranges
from trimtab.papers.spardl.all_gather import SagShare, SummedBlock, bruck, of_largest_overlap, recursive_doubling
from trimtab.papers.spardl.reduce_scatter import Bag, Blocks, BlockSelector, last_bag, spar_reduce_scatter
from trimtab.papers.spardl.residual_log import ResidualLog
from trimtab.transport.base import Transport
from trimtab.transport.group import Group
from trimtab.transport.primitives import all_gather
from trimtab.transport.subgroup import Subgroup
from trimtab.transport.timer import LapTimer
from trimtab.wire import index_code
from trimtab.wire import pairs as sparse_pairs
from trimtab.wire.messages import pack, unpack
from trimtab.wire.pairs import Pairs

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selector


@dataclass(frozen=True)
class FirstBag(Prepared):
    """The accumulated gradient, with the blocks that are sent first already selected."""

    selecting: BlockSelector
    bag: Bag | None
    """None if there is nobody to send to."""
    timer: LapTimer


class SparDL(Collective):
    """Rank r is number r mod P of team r / P, of d teams of P = N / d ranks.

    The residual rules: *global* (the default) conserves. Of an element that is in the mean, a rank keeps what it
    dropped of it on the way, its own or another's, or rounded away. Of every other element it keeps its own, as it was
    (section 3.2). The other two are the ablations of section 4.4, which lose gradient and are outside the conservation
    law. *local* keeps what the rank itself did not select, and loses what others dropped of its selection. *partial*
    keeps its selection, too, where the mean does not have it, and loses what was dropped of elements that the mean has.
    Both lose rounding errors.
    """

    def __init__(self, group: Group, *, teams: int, residual: str) -> None:
        """Make the scheme.

        Args:
            group: The ranks that exchange.
            teams: d, which divides N.
            residual: ``global``, ``local`` or ``partial``.
        """
        super().__init__(group)
        sparse_pairs.warm_up()
        self._teams = teams
        self._rule = residual
        self._per_team = group.size // teams
        self._team, self._number = divmod(group.rank, self._per_team)
        self._adapts = teams & (teams - 1) != 0
        self._shares: dict[tuple[int, int], SagShare] = {}
        self._proposed: dict[tuple[int, int], SagShare] = {}

    def prepare(self, exchange: Exchange, selector: Selector | None) -> FirstBag:
        """Form acc, and select in the blocks that are sent first (Algorithm 1, lines 1 to 7)."""
        assert selector is not None, "SparDL sends a selection"
        timer = LapTimer(exchange.out.device)
        acc = exchange.next_residual
        blocks = Blocks(tuple(exchange.segments), tuple(exchange.k), self._per_team)
        selecting = BlockSelector(acc, exchange.start, blocks, selector, exchange.wire)
        before, bag = selecting.form(exchange, *last_bag(self._number, self._per_team))
        timer.compressed()
        return FirstBag(before, selecting, bag, timer)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Sum the blocks over the ranks, and write the mean (Algorithm 1, lines 5 to 14)."""
        assert isinstance(prepared, FirstBag)
        selecting, timer, num_bytes = prepared.selecting, prepared.timer, transport.num_bytes
        first_of_team = self._team * self._per_team
        team = Subgroup(transport, range(first_of_team, first_of_team + self._per_team))
        timer.resume()
        num_messages = spar_reduce_scatter(team, selecting, prepared.bag, timer)

        joined = self._join(exchange, selecting, transport, vote)
        timer.communicated()

        values, pairs = self._rounded(selecting, joined.pairs, self._teams)
        message = pack(joined.vote, index_code.encode(pairs.indices), values)
        timer.compressed()
        messages, chain = all_gather(team, message)
        timer.communicated()

        blocks, votes = [], []
        for number, each in enumerate(messages):
            part_vote, pairs = unpack(each, vote.numel(), exchange.wire)
            blocks.append(Pairs(pairs.indices + selecting.blocks.start(number), pairs.values))
            votes.append(part_vote)
        kernels.scatter_mean(exchange.out, [block.parts for block in blocks], 1 / transport.size)
        sent, removed = self._settle(
            exchange.next_residual, selecting.log, torch.cat([block.indices for block in blocks])
        )
        timer.compressed()
        return Exchanged(
            sent=sent,
            num_selected=selecting.log.num_taken,
            squared_norm_before=prepared.squared_norm_before,
            squared_norm_after=max(0.0, prepared.squared_norm_before - removed),
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=num_messages + joined.num_messages + chain,
            vote=torch.stack(votes).sum(0),
            compress_seconds=timer.compress_seconds,
            collective_seconds=timer.collective_seconds,
        )

    def _join(self, exchange: Exchange, selecting: BlockSelector, transport: Transport, vote: Tensor) -> SummedBlock:
        """Select in the block whose sum this rank holds, and add it up over the teams (section 3.3)."""
        blocks, log = selecting.blocks, selecting.log
        first, most = blocks.start(self._number), blocks.elements(self._number)
        parts = blocks.parts(self._number)[0]

        def give_back(dropped: Pairs) -> None:
            log.add(Pairs(dropped.indices + first, dropped.values))

        def rounded(pairs: Pairs, holders: int) -> tuple[Tensor, Pairs]:
            return self._rounded(selecting, pairs, holders)

        teams = Subgroup(transport, range(self._number, transport.size, self._per_team))
        if not self._adapts:
            indices, values = selecting.take(self._number, most).parts
            held = Pairs(indices - first, values)
            return recursive_doubling(teams, held, vote, most, give_back, rounded, exchange.wire, parts)
        key = (exchange.start, exchange.start + blocks.n)
        share = self._shares.get(key) or SagShare.of_teams(self._teams)
        indices, values = selecting.take(self._number, share.elements(most)).parts
        joined = bruck(teams, Pairs(indices - first, values), vote, most, rounded, exchange.wire, parts)
        if most > 0:  # a block of no elements tells nothing
            self._proposed[key] = share.after(joined.num_merged, most, self._teams)
        return joined

    def _rounded(self, selecting: BlockSelector, pairs: Pairs, holders: int) -> tuple[Tensor, Pairs]:
        """Round pairs that count from the first element of this rank's block; see `BlockSelector.rounded`."""
        first = selecting.blocks.start(self._number)
        values, sent = selecting.rounded(Pairs(pairs.indices + first, pairs.values), holders)
        return values, Pairs(pairs.indices, sent.values)

    def _settle(self, residual: Tensor, log: ResidualLog, in_mean: Tensor) -> tuple[Tensor, float]:
        """Turn the sum under way into the new residual.

        Returns:
            Where it was cleared (int32 [m]), and the squared norm that this removed.
        """
        if self._rule == "global":
            return in_mean, log.settle(in_mean)
        taken = log.taken()
        log.undo()
        sent = taken if self._rule == "local" else taken[torch.isin(taken, in_mean)]
        return sent, kernels.clear(residual, sent)

    def commit(self) -> None:
        """See `Collective.commit`."""
        self._shares.update(self._proposed)
        self._proposed = {}

    def discard(self) -> None:
        """See `Collective.discard`."""
        self._proposed = {}

    def state_dict(self) -> dict[str, Any]:
        """Return ``shares``: ``[first element, end, h / L, step / L, has agreed]`` each; none under R-SAG."""
        return {
            "shares": [[*key, held.share, held.step, held.has_agreed] for key, held in self._shares.items()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Collective.load_state_dict`; shares of another number of ranks do as well."""
        self._proposed = {}
        self._shares = {
            (int(start), int(end)): SagShare(float(share), float(step), bool(has_agreed))
            for start, end, share, step, has_agreed in state["shares"]
        }

    def rebucket(self, old: Ranges, new: Ranges) -> None:
        """See `Collective.rebucket`: a new buffer goes on from the share of the one that most of it was in."""
        self._proposed = {}
        self._shares = of_largest_overlap(self._shares, new)
