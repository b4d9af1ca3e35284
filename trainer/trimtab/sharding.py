"""Which batches belong to which rank.

What a loader draws is kept: its sampler, its order, its weights. Only what two of torch's own samplers draw (all
samples, in order or shuffled) is drawn by a `DistributedSampler` in their place; any other sampler, and any stream, is
drawn alike on every rank, which then takes its share. So that it is alike, it is drawn under the seed of the run and
the epoch, and not under the generators that training draws from, which differ between ranks.

A loader whose data are split by rank already is left as it is: because something that it carries says so
(`trimtab.presharded`), or the user does.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler
from trimtab_api.errors import UserError

from trimtab.checkpoint.random_state import RandomState
from trimtab.loader_copy import CountedSampler, LoaderCopy, draws_batches, has_begun, iterates_by_itself
from trimtab.presharded import Split, find_split

#: In place of a batch, at the end of an epoch.
_END = object()


class Loaders:
    """The loaders of one rank's training, each seen as its share.

    What is made for a loader is kept as long as the loader itself, so that its persistent workers outlive an epoch.
    """

    def __init__(self, rank: int, num_ranks: int, seed: int) -> None:
        self._rank, self._num_ranks, self._seed = rank, num_ranks, seed
        self._copies: WeakKeyDictionary[Any, LoaderCopy] = WeakKeyDictionary()

    def shard(self, loader: Iterable[Any], *, sharded: bool = False) -> Sharded:
        """This rank's share of ``loader``; all of it where that is ``sharded`` already. Raises `UserError`."""
        share = Sharded(loader, self._rank, self._num_ranks, self._seed, sharded=sharded)
        if share.copy is not None:
            with contextlib.suppress(TypeError):  # a subclass that cannot be a key is copied anew each epoch
                share.use(self._copies.setdefault(loader, share.copy))
        return share


class Sharded:
    """A loader seen from one rank: iterating it gives this rank's batches, the same number on every rank."""

    def __init__(self, loader: Iterable[Any], rank: int, num_ranks: int, seed: int, *, sharded: bool = False) -> None:
        """``sharded``: the user says that ``loader`` holds this rank's batches alone.

        Raises `UserError` for a sampler that cannot be shared out, and for one that shares out among other ranks.
        """
        self._rank, self._num_ranks, self._seed = rank, num_ranks, seed
        self._loader = loader
        self._told: list[Any] = []
        """What is told the epoch."""
        self._take_turns = False
        self.copy: LoaderCopy | None = None
        """What is iterated in the loader's place; None where that is the loader."""
        self.how: str
        """What is done with the loader, for people; the same on every rank. It may change with the first `epoch`."""
        self._shard(sharded)

    def _shard(self, sharded: bool) -> None:
        loader, num_ranks = self._loader, self._num_ranks
        split = find_split(loader)
        sampler = _drawn_by(loader)
        self._told = [] if split is None else [split.by]
        if num_ranks == 1 and not sharded:
            self.how = "left as it is: a single process trains on all of it, in its own order"
        elif split is not None and split.num_ranks != 1:
            if not sharded and (split.num_ranks, split.rank) not in ((num_ranks, self._rank), (None, None)):
                raise _for_other_ranks(split, self._rank, num_ranks)
            self.how = f"already sharded by its {split.name}"
        elif sharded:
            self.how = "taken as it is: the script says that it is sharded already"
        elif sampler is None:
            self._shard_by_turns()
        elif _draws_everything(sampler, loader):
            self._draw_by(_distributed(sampler, loader, self._rank, num_ranks, self._seed))
            self.how = "sharded by a DistributedSampler; the batch size is per rank"
        else:
            share = _Share(sampler, loader, self._rank, num_ranks, self._seed)
            self._draw_by(share)
            what = "sample; the batch size is per rank" if share.of_samples else "batch"
            name, every = type(sampler).__name__, _ordinal(num_ranks)
            self.how = f"its {name} draws alike on all ranks: each takes every {every} {what}"

    def use(self, copy: LoaderCopy) -> None:
        """Iterate the copy of an earlier epoch, if it was of use then."""
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
        """This rank's batches of one epoch. Raises `UserError` where the loader's own iteration cannot be shared."""
        if self.copy is not None:
            self.copy.sampler.set_epoch(number)
            batches: Iterator[Any] = iter(self.copy.follow(self._loader))
            if not iterates_by_itself(self._loader):
                return batches
            first = next(batches, _END)
            if self.copy.sampler.num_draws:
                return iter(()) if first is _END else itertools.chain([first], batches)
            self._refuse_if_begun()
            self.copy.ignores_sampler = True
            self._shard_by_turns()
        for each in self._told:
            if hasattr(each, "set_epoch"):
                each.set_epoch(number)
        if self._take_turns:
            return _turns(self._loader, self._rank, self._num_ranks, self._seed + number)
        return iter(self._loader)

    def _refuse_if_begun(self) -> None:
        """Turns need batches that are drawn anew, alike on all ranks."""
        if has_begun(self._loader):
            raise UserError(
                "has begun to draw its batches before they could be shared among ranks; give it a DistributedSampler "
                "of its rank, or write batches(loader, sharded=True) where each rank has a loader of its own data",
                field="loader",
                value=type(self._loader).__name__,
            )

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch on each rank; None where the loader cannot say."""
        loader = self._loader if self.copy is None else self.copy.follow(self._loader)
        try:
            length = len(loader)  # type: ignore[arg-type]
        except TypeError:
            return None
        return length // self._num_ranks if self._take_turns else length


class _Share(Sampler[Any]):
    """One rank's part of what another sampler draws: every N-th of it, as many on every rank.

    Where N does not divide it, samples are made up for from its beginning, unless the loader drops its last batch;
    of whole batches the last incomplete round is left out.
    """

    def __init__(self, source: Any, loader: Any, rank: int, num_ranks: int, seed: int) -> None:
        try:
            len(source)
        except TypeError:
            raise UserError(
                "cannot be shared among ranks, because it has no length; give it a __len__, or make it draw for each "
                "rank by itself and say so by attributes num_replicas and rank",
                field="sampler",
                value=type(source).__name__,
            ) from None
        self._source, self._rank, self._num_ranks, self._seed = source, rank, num_ranks, seed
        self.of_samples = loader.batch_size is not None and not draws_batches(loader)
        self._fill_up = self.of_samples and not loader.drop_last
        self._epoch = 0

    def set_epoch(self, number: int) -> None:
        self._epoch = number
        if hasattr(self._source, "set_epoch"):
            self._source.set_epoch(number)

    def __iter__(self) -> Iterator[Any]:
        drawn = self._drawn()
        over = len(drawn) % self._num_ranks
        if over and self._fill_up:
            drawn += itertools.islice(itertools.cycle(list(drawn)), self._num_ranks - over)
        elif over:
            del drawn[-over:]
        return iter(drawn[self._rank :: self._num_ranks])

    def __len__(self) -> int:
        whole, over = divmod(len(self._source), self._num_ranks)
        return whole + (1 if over and self._fill_up else 0)

    def _drawn(self) -> list[Any]:
        """All that the sampler draws in this epoch, the same on every rank."""
        before = RandomState.capture()
        try:
            _seed(self._seed + self._epoch, _generators(self._source))
            return list(self._source)
        finally:
            before.restore()


def _drawn_by(loader: Iterable[Any]) -> Any:
    """What draws a loader's samples, or its batches where these are drawn as a whole; None for a stream."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    return loader.batch_sampler if draws_batches(loader) else loader.sampler


def _draws_everything(sampler: Any, loader: Any) -> bool:
    """Whether it is one of torch's own that draws every sample of the loader's data once."""
    if loader.batch_size is None or draws_batches(loader):
        return False
    if getattr(sampler, "data_source", None) is not loader.dataset:
        return False
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return type(sampler) is SequentialSampler


def _distributed(sampler: Any, loader: Any, rank: int, num_ranks: int, seed: int) -> DistributedSampler[Any]:
    return DistributedSampler(
        loader.dataset,
        num_replicas=num_ranks,
        rank=rank,
        shuffle=isinstance(sampler, RandomSampler),
        seed=seed,
        drop_last=loader.drop_last,
    )


def _for_other_ranks(split: Split, rank: int, num_ranks: int) -> UserError:
    return UserError(
        f"gives the share of rank {split.rank} of {split.num_ranks}, and this is rank {rank} of {num_ranks}; make it "
        "for session.rank of session.num_ranks, or hand over a loader of all data",
        field="loader",
        value=split.name,
    )


def _turns(loader: Iterable[Any], rank: int, num_ranks: int, seed: int) -> Iterator[Any]:
    """Every N-th batch; a last round that is not complete is left out, so that no rank waits for another.

    The stream has random generators of its own, seeded alike on every rank: were they those of training, ranks would
    shuffle differently, and train on some samples twice and on others never.
    """
    batches: Iterator[Any] | None = None
    of_stream: RandomState | None = None
    while True:
        of_training = RandomState.capture()
        try:
            if batches is None or of_stream is None:
                _seed(seed, _generators(loader))
                batches = iter(loader)
            else:
                of_stream.restore()
            turn = list(itertools.islice(batches, num_ranks))
            of_stream = RandomState.capture()
        finally:
            of_training.restore()
        if len(turn) < num_ranks:
            return
        yield turn[rank]


def _seed(seed: int, generators: list[torch.Generator]) -> None:
    """Begin anew with what may be drawn from on the CPU: the global generators and ``generators``."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    for generator in (torch.default_generator, *generators):
        generator.manual_seed(seed)


def _generators(source: Any) -> list[torch.Generator]:
    """The generators that a loader or a sampler was given, or whatever draws for it."""
    found: list[torch.Generator] = []
    while source is not None:
        generator = getattr(source, "generator", None)
        if isinstance(generator, torch.Generator):
            found.append(generator)
        source = getattr(source, "sampler", None)
    return found


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 <= number % 100 <= 20 else endings.get(number % 10, 'th')}"
