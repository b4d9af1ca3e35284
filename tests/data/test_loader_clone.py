"""A loader that is shared out stays the user's: its class, its workers, what is changed about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from trimtab.data.sharded_loader import Loaders, ShardedLoader
from trimtab_api.errors import UserError

DATA = TensorDataset(torch.arange(24))


def epochs(loader: Any, rank: int = 0, num_ranks: int = 2, number: int = 1) -> list[list[Any]]:
    """The batches of some epochs, as a session asks for them."""
    loaders = Loaders(rank, num_ranks, seed=3)
    return [list(loaders.shard(loader).epoch(each)) for each in range(number)]


def flat(batches: list[Any]) -> list[int]:
    return [int(x) for batch in batches for x in (batch[0] if isinstance(batch, list) else batch).flatten()]


class Negating(DataLoader[Any]):
    """Changes each batch on the way out."""

    def __iter__(self) -> Any:
        for (batch,) in super().__iter__():
            yield -batch


@pytest.mark.pattern("loaders derived from `DataLoader`", works="keep their own iteration")
def test_a_subclass_keeps_its_own_iteration() -> None:
    (a,), (b,) = (epochs(Negating(DATA, 2, shuffle=True), rank) for rank in range(2))
    assert sorted(flat(a) + flat(b)) == sorted(-x for x in range(24))
    assert len(a) == len(b) == 6


class WithoutSampler(DataLoader[Any]):
    """Goes through its data by itself."""

    def __iter__(self) -> Any:
        yield from torch.arange(24).split(2)


def test_ranks_take_turns_at_a_subclass_that_does_not_draw_by_its_sampler() -> None:
    loaders = Loaders(1, 2, seed=3)
    for epoch in range(2):
        share = loaders.shard(WithoutSampler(DATA, 2))
        assert flat(list(share.epoch(epoch))) == [2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23]
        assert share.how == "ranks take turns: each trains on every 2nd batch"
        assert share.num_batches == 6


def test_that_a_subclass_does_not_draw_by_its_sampler_is_found_out_once() -> None:
    class Counting(WithoutSampler):
        num_begun = 0

        def __iter__(self) -> Any:
            type(self).num_begun += 1
            return super().__iter__()

    epochs(Counting(DATA, 2), number=3)
    assert Counting.num_begun == 1 + 3


class Endless(DataLoader[Any]):
    """Keeps its workers by never ending its one iteration, as detectors' loaders do."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.iterator = super().__iter__()

    def __iter__(self) -> Any:
        for _ in range(len(self)):
            yield next(self.iterator)


def test_a_loader_that_has_begun_to_draw_is_refused_by_name() -> None:
    share = ShardedLoader(Endless(DATA, 2, shuffle=True), 0, 2, seed=3)
    with pytest.raises(UserError, match=r"loader: 'Endless': started to draw .* sharded=True"):
        share.epoch(0)


class WorkerNumbers(TensorDataset):
    """Each sample is the process that read it."""

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(os.getpid())


@pytest.mark.pattern("persistent workers", works="outlive the epoch")
def test_persistent_workers_outlive_an_epoch() -> None:
    loader = DataLoader(WorkerNumbers(torch.arange(8)), 2, num_workers=1, persistent_workers=True)
    first, second = (set(flat(batches)) for batches in epochs(loader, number=2))
    assert first == second
    assert os.getpid() not in first


def test_what_is_changed_about_a_loader_between_epochs_holds_in_the_next() -> None:
    loader = DataLoader(DATA, 2)
    loaders = Loaders(0, 2, seed=3)
    before = flat(list(loaders.shard(loader).epoch(0)))
    loader.collate_fn = lambda samples: -torch.stack([x for (x,) in samples])
    assert flat(list(loaders.shard(loader).epoch(1))) == [-x for x in before]


def test_what_is_made_for_a_loader_goes_with_it() -> None:
    loaders = Loaders(0, 2, seed=3)
    loader = DataLoader(DATA, 2)
    list(loaders.shard(loader).epoch(0))
    assert len(loaders._copies) == 1
    del loader
    assert len(loaders._copies) == 0


def test_the_user_s_own_iteration_over_the_loader_stays_whole() -> None:
    loader = DataLoader(DATA, 2)
    epochs(loader)
    assert flat(list(loader)) == list(range(24))


class OwnIterator(DataLoader[Any]):
    """Has an iterator of its own that draws by the sampler, as torchdata's loader has."""

    def _get_iterator(self) -> Any:
        return self._drawing()

    def _drawing(self) -> Iterator[Any]:
        for indices in self._index_sampler:
            yield torch.tensor(indices)


def test_a_subclass_with_an_iterator_of_its_own_is_asked_for_it() -> None:
    (a,), (b,) = (epochs(OwnIterator(DATA, 2, shuffle=True), rank) for rank in range(2))
    assert sorted(flat(a) + flat(b)) == list(range(24))
