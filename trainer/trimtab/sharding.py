"""Which batches belong to which rank."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler
from torch.utils.data.distributed import DistributedSampler


class Sharded:
    """A loader seen from one rank: iterating it gives this rank's batches, the same number on every rank."""

    def __init__(self, loader: Iterable[Any], rank: int, num_ranks: int, seed: int) -> None:
        self._rank, self._num_ranks = rank, num_ranks
        self._sampler: DistributedSampler[Any] | None = None
        self._loader = loader
        self._take_turns = False
        if isinstance(loader, DataLoader) and isinstance(loader.sampler, DistributedSampler):
            self._sampler = loader.sampler
            self.how = "already sharded by its DistributedSampler"
        elif num_ranks == 1:
            self.how = "left as it is: a single process trains on all of it, in its own order"
        elif _can_be_rebuilt(loader):
            self._loader, self._sampler = _rebuild(loader, rank, num_ranks, seed)
            self.how = "sharded by a DistributedSampler; the batch size is per rank"
        else:
            self._take_turns = True
            self.how = f"ranks take turns: rank {rank} trains on every {num_ranks}th batch"

    def epoch(self, number: int) -> Iterator[Any]:
        """This rank's batches of one epoch."""
        if self._sampler is not None:
            self._sampler.set_epoch(number)
        if self._take_turns and self._num_ranks > 1:
            return _turns(iter(self._loader), self._rank, self._num_ranks)
        return iter(self._loader)

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch on each rank; None where the loader cannot say."""
        try:
            length = len(self._loader)  # type: ignore[arg-type]
        except TypeError:
            return None
        return length // self._num_ranks if self._take_turns else length


def _can_be_rebuilt(loader: Iterable[Any]) -> bool:
    """Whether it is a plain DataLoader over a map-style dataset, batching by itself."""
    return (
        isinstance(loader, DataLoader)
        and not isinstance(loader.dataset, IterableDataset)
        and loader.batch_size is not None
    )


def _rebuild(loader: Any, rank: int, num_ranks: int, seed: int) -> tuple[DataLoader[Any], DistributedSampler[Any]]:
    """The same loader with a DistributedSampler; shuffles if the loader did."""
    sampler: DistributedSampler[Any] = DistributedSampler(
        loader.dataset,
        num_replicas=num_ranks,
        rank=rank,
        shuffle=isinstance(loader.sampler, RandomSampler),
        seed=seed,
        drop_last=loader.drop_last,
    )
    workers: dict[str, Any] = {}
    if loader.num_workers:
        workers = {"prefetch_factor": loader.prefetch_factor, "persistent_workers": loader.persistent_workers}
    rebuilt = DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        **workers,
    )
    return rebuilt, sampler


def _turns(batches: Iterator[Any], rank: int, num_ranks: int) -> Iterator[Any]:
    """Every N-th batch; a last round that is not complete is left out, so that no rank waits for another."""
    while True:
        turn = list(itertools.islice(batches, num_ranks))
        if len(turn) < num_ranks:
            return
        yield turn[rank]
