"""ExDyna (Algorithm 1): every rank selects in a partition of its own, and all send what any of them selected.

Partitions do not overlap, so the selections add up to k whatever the number of ranks. Ranks take partitions in turn
(rank r has partition (t + r) mod N at step t), and partitions are balanced by what was selected in them (`partitions`).
One threshold serves all ranks, scaled by the count that it achieved (`selection`).

The paper gathers counts, then indices padded to the largest count, then all-reduces values. Messages here tell their
own length, so counts travel with the indices and no padding is sent: log2 N fewer messages than its four phases, and as
many bytes at most on the rank that selected most. Cost: [log2 N + 2 (N-1)] alpha + (N-1)/N (f + 2) M c beta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared, Ranges
from trimtab.collectives.sparse_parts import mean_at
from trimtab.papers.exdyna.partitions import Partitions, imbalance
from trimtab.papers.exdyna.selection import RULES, SMALLEST, PartSelection, mean_of, select_over, within_quota
from trimtab.sparsifiers.topk import kth_largest
from trimtab.transport.group import Group
from trimtab.transport.primitives import all_gather
from trimtab.transport.timer import LapTimer
from trimtab.wire import index_code

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selector
    from trimtab.transport.base import Transport

#: A sample that seeds a threshold should hold this many of the k largest elements: 3% of error in their count.
TOP_SAMPLES = 1000
#: A count that is off by more than this factor seeds the threshold again: scaling it would take many steps.
LOST = 2.0
#: A rank's message begins with its threshold and its count, both float64.
HEAD_BYTES = 16
#: A rank sends at most this multiple of what was expected of its partition: what a sudden large gradient may cost.
CAPACITY_MULTIPLE = 2.0


@dataclass(frozen=True)
class BufferState:
    """State that one buffer carries from step to step, the same on every rank."""

    k: int
    threshold: float
    """Threshold for the next step."""
    partitions: Partitions
    """Partitions of the last step."""
    counts: tuple[int, ...]
    """Elements selected in each partition in the last step."""

    @property
    def is_lost(self) -> bool:
        """True if the threshold is far from what k elements reach."""
        return not self.k / LOST <= sum(self.counts) <= self.k * LOST


@dataclass(frozen=True)
class PartSelected(Prepared):
    """A rank's selection in its partition."""

    partitions: Partitions
    threshold: float
    selection: PartSelection
    indices: Tensor
    """uint8: the selection's indices, coded."""
    timer: LapTimer


class ExDyna(Collective):
    """The update is the mean of acc at the elements that any rank selected; all ranks clear their residual there.

    About k elements in all, and at most 2k of a sudden: see table `exdyna` of benchmarks/results. It selects in
    partitions of the whole buffer, whatever its segments are. A buffer whose range a new fusion plan keeps, keeps
    threshold and partitions; any other begins anew.
    """

    def __init__(self, group: Group, *, threshold: str, partition: str) -> None:
        """Make the scheme.

        Args:
            group: The ranks that exchange.
            threshold: Name of a rule of `RULES`.
            partition: ``dynamic``, or ``coarse`` for even partitions that stay.
        """
        super().__init__(group)
        index_code.warm_up()
        self._rule, self._scale = threshold, RULES[threshold]
        self._balances = partition == "dynamic"
        self._state: dict[tuple[int, int], BufferState] = {}
        self._proposed: dict[tuple[int, int], BufferState] = {}

    def prepare(self, exchange: Exchange, selector: Selector | None) -> PartSelected:
        """Select in this rank's partition (Algorithm 1; section IV-C)."""
        timer = LapTimer(exchange.out.device)
        state = self._state.get(_key(exchange))
        partitions, expected = self._partitions(exchange, state)
        threshold = self._threshold(exchange, state)
        own = (exchange.step + self.group.rank) % self.group.size
        capacity = math.ceil(CAPACITY_MULTIPLE * _k(exchange) * expected[own])
        span = partitions.span(own)
        selection = select_over(exchange, span, threshold, capacity)
        if self._rule == "bounded" and _k(exchange) < exchange.out.numel():
            assert selector is not None, "ExDyna sends a selection"
            quota = min(partitions.quota(_k(exchange), own), span[1] - span[0])
            # By where the partition began: its present range would leave a state behind with every block that moves.
            began, ended = Partitions.even(exchange.out.numel(), self.group.size).span(own)
            key = (exchange.start + began, ended - began)
            selection = within_quota(exchange, span, selection, quota, selector, key)
        coded = index_code.encode(selection.indices)
        timer.compressed()
        return PartSelected(selection.squared_norm_before, partitions, threshold, selection, coded, timer)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Gather all ranks' indices, and all-reduce the values there."""
        assert isinstance(prepared, PartSelected)
        residual, timer, selection = exchange.next_residual, prepared.timer, prepared.selection
        num_bytes, size = transport.num_bytes, transport.size
        timer.resume()
        head = torch.tensor([prepared.threshold, selection.num_over], dtype=torch.float64, device=residual.device)
        messages, gathering = all_gather(transport, torch.cat([head.view(torch.uint8), prepared.indices]))
        timer.communicated()

        # By partition, and so in ascending order.
        messages = [messages[(partition - exchange.step) % size] for partition in range(size)]
        heads = [message[:HEAD_BYTES].clone().view(torch.float64).tolist() for message in messages]
        parts = [index_code.decode(message[HEAD_BYTES:]) for message in messages]
        threshold = mean_of([of_rank for of_rank, _ in heads])
        self._propose(exchange, prepared.partitions, threshold, [int(count) for _, count in heads])
        union, counts = torch.cat(parts), [part.numel() for part in parts]
        values = kernels.take(residual, union)
        cleared = kernels.clear(residual, union)
        own = (exchange.step + transport.rank) % size
        values[sum(counts[:own]) : sum(counts[: own + 1])] = selection.values  # the residual is zero there already
        timer.compressed()

        reducing, kept = mean_at(exchange, transport, union, values, vote, timer)
        return Exchanged(
            sent=union,
            num_selected=union.numel(),
            squared_norm_before=prepared.squared_norm_before,
            squared_norm_after=max(0.0, selection.squared_norm_after - cleared) + kept,
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=gathering + reducing,
            vote=vote,
            compress_seconds=timer.compress_seconds,
            collective_seconds=timer.collective_seconds,
            figures={
                "density": union.numel() / exchange.out.numel(),
                "imbalance": imbalance(counts),
                "threshold": threshold,
            },
        )

    def commit(self) -> None:
        """See `Collective.commit`."""
        self._state.update(self._proposed)
        self._proposed = {}

    def discard(self) -> None:
        """See `Collective.discard`."""
        self._proposed = {}

    def state_dict(self) -> dict[str, Any]:
        """Return ``buffers``: ``[first element, length, k, threshold, first blocks, counts]`` each."""
        return {
            "buffers": [
                [*key, state.k, state.threshold, list(state.partitions.first_blocks), list(state.counts)]
                for key, state in self._state.items()
            ]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Collective.load_state_dict`."""
        self._proposed = {}
        self._state = {
            (start, length): BufferState(k, threshold, Partitions(length, tuple(first_blocks)), tuple(counts))
            for start, length, k, threshold, first_blocks, counts in state["buffers"]
        }

    def rebucket(self, old: Ranges, new: Ranges) -> None:
        """See `Collective.rebucket`: a range that stays keeps its state."""
        kept = {(start, stop - start) for start, stop in new}
        self._state = {key: state for key, state in self._state.items() if key in kept}

    def _partitions(self, exchange: Exchange, state: BufferState | None) -> tuple[Partitions, list[float]]:
        """Return this step's partitions, and each one's expected share of what is selected."""
        n, size = exchange.out.numel(), self.group.size
        if state is None or len(state.counts) != size or not sum(state.counts):
            return Partitions.even(n, size), [1.0] * size
        partitions, counts = state.partitions, tuple(map(float, state.counts))
        if self._balances:
            partitions, counts = partitions.balanced(counts)
        return partitions, [max(count / sum(counts), 1 / size) for count in counts]

    def _threshold(self, exchange: Exchange, state: BufferState | None) -> float:
        """Return the threshold that this rank selects by: the carried one, or one of its own to begin with."""
        n, k = exchange.out.numel(), _k(exchange)
        if k == n:
            return 0.0
        if state is not None and (self._rule == "paper" or (state.k == k and not state.is_lost)):
            return state.threshold
        if self._rule == "paper":
            return 0.5 / math.sqrt(k)  # as its released code begins
        samples = kernels.sample(exchange.grad, exchange.residual, min(n, math.ceil(TOP_SAMPLES * n / k)))
        return max(SMALLEST, kth_largest(samples, max(1, round(samples.numel() * k / n))))

    def _propose(self, exchange: Exchange, partitions: Partitions, threshold: float, counts: list[int]) -> None:
        k = _k(exchange)
        if k < exchange.out.numel():
            threshold = max(SMALLEST, threshold * self._scale(sum(counts), k))
            self._proposed[_key(exchange)] = BufferState(k, threshold, partitions, tuple(counts))


def _key(exchange: Exchange) -> tuple[int, int]:
    return exchange.start, exchange.out.numel()


def _k(exchange: Exchange) -> int:
    """Return the number of elements that all ranks together are to select."""
    return min(exchange.out.numel(), sum(exchange.k))
