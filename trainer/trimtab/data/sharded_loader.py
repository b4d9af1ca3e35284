"""A loader seen from one rank: which of its batches are this rank's.

What a loader draws is kept: its sampler, its order, its weights. Two of torch's own samplers draw every sample once, in
order or shuffled; a `DistributedSampler` takes their place. Any other sampler, and any stream, is drawn alike on every
rank, and each rank takes its share (`trimtab.data.sharding`).

A loader whose data are split by rank already is left as it is. Either something that it carries shows the split
(`trimtab.data.shard_detection`), or the user says so.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import DataLoader, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler
from trimtab_api.errors import UserError

from trimtab.data.checks import digest, digest_of_data
from trimtab.data.loader_clone import CountedSampler, LoaderCopy, draws_batches, has_begun, iterates_by_itself
from trimtab.data.position import Drawing, Order
from trimtab.data.samplers import distributed, drawn_by, draws_everything
from trimtab.data.shard_detection import Split, find_split
from trimtab.data.sharding import (
    EpochNumbers,
    EveryNthSampler,
    LeftOut,
    every_nth_batch,
    left_out_of_last_batches,
    left_out_of_rounds,
    length_of,
    own_generators,
)

#: Stands for a batch, at the end of an epoch.
_END = object()


class Loaders:
    """The loaders that one rank trains on, each seen as this rank's share.

    The copy that is made of a loader lives as long as the loader, so that its persistent workers outlive an epoch.
    """

    def __init__(self, rank: int, num_ranks: int, seed: int) -> None:
        self._rank, self._num_ranks, self._seed = rank, num_ranks, seed
        self._copies: WeakKeyDictionary[Any, LoaderCopy] = WeakKeyDictionary()
        self._numbers = EpochNumbers()

    @property
    def num_ranks(self) -> int:
        """How many ranks share each."""
        return self._num_ranks

    def shard(self, loader: Iterable[Any], *, sharded: bool = False) -> ShardedLoader:
        """Return the rank's share of ``loader``; all of it where that is ``sharded`` already. Raise `UserError`."""
        share = ShardedLoader(loader, self._rank, self._num_ranks, self._seed, sharded=sharded, numbers=self._numbers)
        if share.copy is not None:
            with contextlib.suppress(TypeError):  # a subclass that cannot be a key is copied anew each epoch
                share.use(self._copies.setdefault(loader, share.copy))
        return share


class ShardedLoader:
    """A loader seen from one rank: iterating it gives this rank's batches, the same number on every rank."""

    def __init__(
        self,
        loader: Iterable[Any],
        rank: int,
        num_ranks: int,
        seed: int,
        *,
        sharded: bool = False,
        numbers: EpochNumbers | None = None,
    ) -> None:
        """See ``loader`` from one rank.

        Args:
            loader: Its batches are shared.
            rank: The rank whose share this is.
            num_ranks: Number of ranks that share it.
            seed: The seed by which all ranks draw alike.
            sharded: Whether the user says that ``loader`` holds this rank's batches alone.
            numbers: The numbers of epochs that were told before.

        Raises:
            UserError: The sampler cannot be shared out, or shares out among other ranks.
        """
        self._rank, self._num_ranks, self._seed = rank, num_ranks, seed
        self._loader, self._numbers = loader, numbers or EpochNumbers()
        self._told: list[Any] = []
        """Objects that may have a `set_epoch` to call: what splits the data, if anything does."""
        self._take_turns = False
        self.is_alike = True
        """True if every rank draws the same, of which it takes its share; else each has its own data."""
        self._first_round: str | None = None
        self._num_drawn = 0
        """Batches that ranks have taken turns at in this epoch."""
        self.copy: LoaderCopy | None = None
        """The copy that is iterated in the loader's place; None where that is the loader."""
        self.how: str
        """The treatment of the loader, for people; the same on every rank. It may change with the first `epoch`."""
        self._shard(sharded)

    def _shard(self, sharded: bool) -> None:
        loader, num_ranks = self._loader, self._num_ranks
        split = find_split(loader)
        self._sampler = sampler = drawn_by(loader)
        self._is_alone, self._split = num_ranks == 1 and not sharded, split
        is_distributed = split is not None and type(split.by) is DistributedSampler and not sharded
        self._scripts_own = split.by if split is not None and is_distributed else None
        self._told = [] if split is None else [split.by]
        if self._is_alone:
            self.how = "left as it is: a single process trains on all of it, in its own order"
        elif split is not None and split.num_ranks != 1:
            if not sharded and (split.num_ranks, split.rank) not in ((num_ranks, self._rank), (None, None)):
                raise _for_other_ranks(split, self._rank, num_ranks)
            self.how = f"already sharded by its {split.name}"
            self.is_alike = False
        elif sharded:
            self.how = "taken as it is: the script says that it is sharded already"
            self.is_alike = False
        elif sampler is None:
            self._shard_by_turns()
        elif draws_everything(sampler, loader):
            self._draw_by(distributed(sampler, loader, self._rank, num_ranks, self._seed))
            self.how = "sharded by a DistributedSampler; the batch size is per rank"
        else:
            share = EveryNthSampler(sampler, loader, self._rank, num_ranks, self._seed, self._numbers)
            self._draw_by(share)
            what = "sample; the batch size is per rank" if share.of_samples else "batch"
            name, every = type(sampler).__name__, _ordinal(num_ranks)
            self.how = f"its {name} draws alike on all ranks: each takes every {every} {what}"

    def use(self, copy: LoaderCopy) -> None:
        """Iterate the copy of an earlier epoch; or take turns, where that copy turned out to ignore its sampler."""
        self.copy = copy
        if copy.ignores_sampler:
            self._shard_by_turns()

    def _draw_by(self, sampler: Sampler[Any]) -> None:
        self.copy = LoaderCopy(CountedSampler(sampler))

    def _shard_by_turns(self) -> None:
        self._take_turns = True
        self.copy = None
        self.how = f"ranks take turns: each trains on every {_ordinal(self._num_ranks)} batch"

    def epoch(self, number: int) -> Iterator[Any]:
        """Return the rank's batches of one epoch. Raise `UserError` if the loader's own iteration cannot be shared."""
        if self.copy is not None:
            self.copy.sampler.set_epoch(number)
            batches: Iterator[Any] = iter(self.copy.follow(self._loader))
            if not iterates_by_itself(self._loader):
                return batches
            first = next(batches, _END)
            if self.copy.sampler.num_draws:
                return iter(()) if first is _END else itertools.chain([first], batches)
            self._refuse_if_begun()
            self.copy.ignore_sampler()
            self._shard_by_turns()
        for each in self._told:
            self._numbers.tell(each, number)
        if self._take_turns:
            self._num_drawn = 0
            seed = self._seed + number
            return every_nth_batch(self._loader, self._rank, self._num_ranks, seed, drawn=self._count)
        return iter(self._loader)

    def _refuse_if_begun(self) -> None:
        """Raise `UserError` if the loader has begun: turns need batches that are drawn anew, alike on all ranks."""
        if has_begun(self._loader):
            raise UserError(
                "started to draw batches before they could be split among ranks; give it a DistributedSampler"
                " of its rank, or write batches(loader, sharded=True) if each rank has a loader of its own"
                " data",
                field="loader",
                value=type(self._loader).__name__,
            )

    def _count(self, batches: list[Any]) -> None:
        if self._num_drawn == 0:
            self._first_round = digest(batches)
        self._num_drawn += len(batches)

    @property
    def look(self) -> str | None:
        """A digest of what every rank should have drawn alike in this epoch; None before that, or where none should."""
        if self._take_turns:
            return self._first_round
        if self.copy is None or not isinstance(self._loader, DataLoader):
            return None
        sampler = self.copy.sampler.source
        return sampler.look if isinstance(sampler, EveryNthSampler) else digest_of_data(self._loader.dataset)

    @property
    def drawing(self) -> Drawing:
        """How ranks draw an epoch; it may change with the first `epoch`."""
        loader, num_ranks, own = self._loader, self._num_ranks, self._scripts_own
        is_shareable = self._take_turns or self.copy is not None or (self._is_alone and self._split is None)
        if self._take_turns or not isinstance(loader, DataLoader) or self._sampler is None:
            order: Order = "seed" if self._take_turns else ""
            return Drawing(num_ranks, order, length_of(loader), 1, "batches", is_shareable=is_shareable)
        of_samples = loader.batch_size is not None and not draws_batches(loader)
        if own is not None:
            is_shareable = of_samples and own.num_replicas == num_ranks and own is loader.sampler
        is_shareable &= not iterates_by_itself(loader)
        is_by_seed = own is not None or not self._is_alone or type(self._sampler) is SequentialSampler
        is_known = not own_generators(loader) and not loader.persistent_workers  # whose first epoch draws one seed more
        order = "seed" if is_by_seed else "generators" if is_known else ""
        return Drawing(
            num_ranks,
            order if is_shareable else "",
            length_of(self._sampler if own is None else own.dataset),
            (loader.batch_size or 1) if of_samples else 1,
            "samples" if of_samples else "batches",
            is_shareable=is_shareable,
        )

    @property
    def name(self) -> str:
        """The loader's class, for people."""
        return type(self._loader).__name__

    @property
    def is_iterator(self) -> bool:
        """True if the loader gives its batches once, as a generator does."""
        return isinstance(self._loader, Iterator)

    @property
    def left_out(self) -> LeftOut | None:
        """The data that no rank trains on in an epoch; None for none, or if it is not known before the end."""
        num_ranks, loader = self._num_ranks, self._loader
        if self._take_turns:
            drawn = self._num_drawn or length_of(loader) or 0
            return left_out_of_rounds(drawn, num_ranks)
        if not isinstance(loader, DataLoader) or self.copy is None or (num_drawn := length_of(self._sampler)) is None:
            return None
        if draws_batches(loader) or loader.batch_size is None:
            return left_out_of_rounds(num_drawn, num_ranks)
        num_batches = self.num_batches
        if not loader.drop_last or num_batches is None:
            return None
        return left_out_of_last_batches(num_drawn, num_batches, loader.batch_size, num_ranks)

    @property
    def why_empty(self) -> str:
        """The reason why an epoch has no batches, as far as it is known; begins with a colon."""
        left_out = self.left_out
        if left_out is not None and left_out.num == left_out.of:
            return f": {left_out}"
        return f": {self.name} gives none"

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch on each rank; None where the loader cannot say."""
        length = length_of(self._loader if self.copy is None else self.copy.follow(self._loader))
        if length is None:
            return None
        return length // self._num_ranks if self._take_turns else length


def _for_other_ranks(split: Split, rank: int, num_ranks: int) -> UserError:
    return UserError(
        f"gives the share of rank {split.rank} of {split.num_ranks}, and this is rank {rank} of {num_ranks}; make it "
        "for session.rank of session.num_ranks, or hand over a loader of all data",
        field="loader",
        value=split.name,
    )


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 <= number % 100 <= 20 else endings.get(number % 10, 'th')}"
