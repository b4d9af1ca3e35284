"""Which batches belong to which rank.

What a loader draws is kept: its sampler, its order, its weights. Only what two of torch's own samplers draw (all
samples, in order or shuffled) is drawn by a `DistributedSampler` in their place; any other sampler, and any stream, is
drawn alike on every rank, which then takes its share. So that it is alike, it is drawn under the seed of the run and
the epoch, and not under the generators that training draws from, which differ between ranks.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler
from trimtab_api.errors import UserError

from trimtab.checkpoint.random_state import RandomState


class Sharded:
    """A loader seen from one rank: iterating it gives this rank's batches, the same number on every rank."""

    def __init__(self, loader: Iterable[Any], rank: int, num_ranks: int, seed: int) -> None:
        """Raises `UserError` for a sampler that cannot be shared out."""
        self._rank, self._num_ranks, self._seed = rank, num_ranks, seed
        self._loader = loader
        self._sampler: Any = None
        """What is told the epoch."""
        self._take_turns = False
        self.how: str
        """What is done with the loader, for people; the same on every rank."""
        self._shard()

    def _shard(self) -> None:
        loader, num_ranks = self._loader, self._num_ranks
        sampler = _drawn_by(loader)
        if (already := _sharded_by(sampler)) is not None:
            self._sampler = already
            self.how = f"already sharded by its {type(already).__name__}"
        elif num_ranks == 1:
            self.how = "left as it is: a single process trains on all of it, in its own order"
        elif sampler is None:
            self._take_turns = True
            self.how = f"ranks take turns: each trains on every {_ordinal(num_ranks)} batch"
        elif _draws_everything(sampler, loader):
            self._sampler = _distributed(sampler, loader, self._rank, num_ranks, self._seed)
            self._loader = _rebuilt(loader, self._sampler)
            self.how = "sharded by a DistributedSampler; the batch size is per rank"
        else:
            self._sampler = _Share(sampler, loader, self._rank, num_ranks, self._seed)
            self._loader = _rebuilt(loader, self._sampler)
            what = "sample; the batch size is per rank" if self._sampler.of_samples else "batch"
            name, every = type(sampler).__name__, _ordinal(num_ranks)
            self.how = f"its {name} draws alike on all ranks: each takes every {every} {what}"

    def epoch(self, number: int) -> Iterator[Any]:
        """This rank's batches of one epoch."""
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(number)
        if self._take_turns:
            return _turns(self._loader, self._rank, self._num_ranks, self._seed + number)
        return iter(self._loader)

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch on each rank; None where the loader cannot say."""
        try:
            length = len(self._loader)  # type: ignore[arg-type]
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
        self.of_samples = loader.batch_size is not None
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
    if loader.batch_size is None and loader.batch_sampler is not None:
        return loader.batch_sampler
    return loader.sampler


def _sharded_by(sampler: Any) -> Any:
    """The sampler, or the one inside a sampler of batches, that knows of ranks by itself; None where there is none."""
    for each in (sampler, getattr(sampler, "sampler", None)):
        if isinstance(each, DistributedSampler) or (hasattr(each, "num_replicas") and hasattr(each, "rank")):
            return each
    return None


def _draws_everything(sampler: Any, loader: Any) -> bool:
    """Whether it is one of torch's own that draws every sample of the loader's data once."""
    if loader.batch_size is None or getattr(sampler, "data_source", None) is not loader.dataset:
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


def _rebuilt(loader: Any, sampler: Sampler[Any]) -> DataLoader[Any]:
    """The same loader with another sampler, of batches where the loader's was one of batches."""
    drawing: dict[str, Any] = {"batch_size": loader.batch_size, "sampler": sampler, "drop_last": loader.drop_last}
    if loader.batch_size is None:
        drawing = {"batch_size": None, "sampler": sampler}
        if loader.batch_sampler is not None:
            drawing = {"batch_sampler": sampler}
    workers: dict[str, Any] = {}
    if loader.num_workers:
        workers = {"prefetch_factor": loader.prefetch_factor, "persistent_workers": loader.persistent_workers}
    return DataLoader(
        loader.dataset,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        **drawing,
        **workers,
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
