"""The rest of an epoch that another number of ranks has begun, seen from one rank.

However many ranks draw an epoch, they draw it in one order: rank r of N takes every N-th sample from the r-th on. So
all ranks together have trained on the first samples of that order, and the rest is shared out anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import Sampler
from torch.utils.data.distributed import DistributedSampler

from trimtab.checkpoint.random_state import RandomState
from trimtab.data.checks import digest
from trimtab.data.loader_clone import CountedSampler, LoaderCopy
from trimtab.data.position import Drawing, Position
from trimtab.data.samplers import distributed, draws_everything
from trimtab.data.sharded_loader import ShardedLoader
from trimtab.data.sharding import EveryNthSampler, LeftOut, every_nth_batch, length_of_share, share_of


class _Listed(Sampler[Any]):
    """Draws what was listed before."""

    def __init__(self, drawn: list[Any]) -> None:
        self._drawn = drawn

    def __iter__(self) -> Iterator[Any]:
        return iter(self._drawn)

    def __len__(self) -> int:
        return len(self._drawn)


class RestOfEpoch(ShardedLoader):
    """One rank's share of what is left of an epoch."""

    def __init__(self, whole: ShardedLoader, position: Position, start: int, began: RandomState | None) -> None:
        """See the rest from one rank.

        Args:
            whole: The loader as this rank would see a whole epoch of it.
            position: Where the earlier ranks were, with a known order.
            start: How much of that order was drawn before.
            began: The generators with which the epoch began; they decide its order where a single process began it.
        """
        super().__init__(whole._loader, whole._rank, whole._num_ranks, whole._seed, numbers=whole._numbers)
        self._start, self._began = start, began
        self._of_whole = replace(whole.drawing, order=position.order, before=start)
        of_batches, own = self._of_whole.unit == "batches", self._scripts_own
        self._drops_last = of_batches or bool(getattr(self._loader, "drop_last", False))
        self._fill_up = not (self._drops_last if own is None or of_batches else own.drop_last)

    @property
    def drawing(self) -> Drawing:
        """How ranks draw the epoch: in the order in which it was begun."""
        return self._of_whole

    @property
    def left_out(self) -> LeftOut | None:
        """None: what is left out in an epoch was said of the whole one."""
        return None

    @property
    def num_batches(self) -> int | None:
        """Batches that are left on each rank; None where the loader cannot say."""
        total, batch = self._of_whole.total, self._of_whole.batch
        if total is None:
            return None
        length = length_of_share(total - self._start, self._num_ranks, fill_up=self._fill_up)
        return length // batch if self._drops_last else -(-length // batch)

    def epoch(self, number: int) -> Iterator[Any]:
        """Return the rank's batches of the rest of that epoch."""
        if self._sampler is None:
            return every_nth_batch(
                self._loader,
                self._rank,
                self._num_ranks,
                self._seed + number,
                start=self._start,
                drawn=self._count,
            )
        order = self._order(number)
        self._first_round = digest(order)
        own = share_of(order, self._start, self._rank, self._num_ranks, fill_up=self._fill_up)
        return iter(LoaderCopy(CountedSampler(_Listed(own))).follow(self._loader))

    @property
    def look(self) -> str | None:
        """A digest of what every rank should have drawn alike; None before the epoch."""
        return self._first_round

    def _order(self, number: int) -> list[Any]:
        """Return all that the epoch draws, the same on every rank."""
        loader, sampler, scripts_own = self._loader, self._sampler, self._scripts_own
        if self._of_whole.order == "generators":
            return self._order_of_one_process()
        if scripts_own is not None:
            self._numbers.tell(scripts_own, number)
            data, shuffle, seed = scripts_own.dataset, scripts_own.shuffle, scripts_own.seed
            whole: DistributedSampler[Any] = DistributedSampler(data, 1, 0, shuffle, seed)
            number = scripts_own.epoch
        elif draws_everything(sampler, loader):
            whole = distributed(sampler, loader, 0, 1, self._seed)
        else:
            alike = EveryNthSampler(sampler, loader, 0, 1, self._seed, self._numbers)
            alike.set_epoch(number)
            return alike.drawn()
        whole.set_epoch(number)
        return list(whole)

    def _order_of_one_process(self) -> list[Any]:
        """Return what a process that trained alone has drawn; its loader drew a seed for its workers first."""
        assert self._began is not None, "without them there is no rest"
        before = RandomState.capture()
        try:
            self._began.restore()
            sampler = self._sampler
            if self._of_whole.unit == "batches":  # else torch's sampler of batches asks it when a batch is drawn
                sampler = iter(sampler)
            torch.empty((), dtype=torch.int64).random_()
            return list(sampler)
        finally:
            before.restore()
