"""Which batches belong to which rank."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler
from trimtab.data.sharded_loader import Loaders, ShardedLoader
from trimtab_api.errors import UserError


def shuffled(n: int) -> list[int]:
    return random.sample(range(n), n)


def samples(loader: Any, rank: int, num_ranks: int, epoch: int = 0) -> list[list[int]]:
    batches = ShardedLoader(loader, rank, num_ranks, seed=3).epoch(epoch)
    return [(batch[0] if isinstance(batch, list) else batch).flatten().tolist() for batch in batches]


@pytest.mark.pattern("shuffling loaders", works="every sample once an epoch over all ranks")
@given(st.integers(1, 5), st.integers(5, 60), st.integers(1, 7))
def test_ranks_share_every_sample_and_take_as_many_steps(num_ranks: int, num_samples: int, batch_size: int) -> None:
    dataset = TensorDataset(torch.arange(num_samples))
    shards = [samples(DataLoader(dataset, batch_size, shuffle=True), r, num_ranks) for r in range(num_ranks)]
    assert len({len(shard) for shard in shards}) == 1
    assert {x for shard in shards for batch in shard for x in batch} == set(range(num_samples))


def test_a_shuffling_loader_is_shuffled_anew_each_epoch_and_a_sequential_one_never() -> None:
    dataset = TensorDataset(torch.arange(64))
    shuffling, sequential = DataLoader(dataset, 4, shuffle=True), DataLoader(dataset, 4)
    assert samples(shuffling, 0, 2, epoch=0) != samples(shuffling, 0, 2, epoch=1)
    assert samples(sequential, 0, 2, epoch=0) == samples(sequential, 0, 2, epoch=1)


def test_a_sharded_loader_is_left_alone() -> None:
    dataset = TensorDataset(torch.arange(12))
    sampler = DistributedSampler(dataset, num_replicas=3, rank=2, shuffle=False)
    assert samples(DataLoader(dataset, 2, sampler=sampler), 2, 3) == [[2, 5], [8, 11]]


@pytest.mark.pattern("a loader sharded for other ranks", refused="names the sampler, and both numbers")
@pytest.mark.parametrize(("rank", "num_ranks"), [(1, 3), (2, 4)])
def test_a_loader_that_is_sharded_for_other_ranks_is_refused(rank: int, num_ranks: int) -> None:
    """Several ranks with the number of one, as of LOCAL_RANK on two machines, would train on the same samples."""
    dataset = TensorDataset(torch.arange(12))
    loader = DataLoader(dataset, 2, sampler=DistributedSampler(dataset, num_replicas=3, rank=2))
    with pytest.raises(UserError, match=rf"'DistributedSampler': gives the share of rank 2 of 3, .* {rank} of"):
        ShardedLoader(loader, rank, num_ranks, seed=0)


def test_a_sampler_for_one_rank_alone_draws_for_all_of_them() -> None:
    dataset = TensorDataset(torch.arange(40))
    loader = DataLoader(dataset, 2, sampler=DistributedSampler(dataset, num_replicas=1, rank=0))
    a, b = shards(loader, 2)
    assert sorted(a + b) == list(range(40))
    assert shards(loader, 2) == [a, b] != shards(loader, 2, epoch=1)


def shards(loader: Any, num_ranks: int, epoch: int = 0) -> list[list[int]]:
    """Each rank's samples, drawn under global generators that differ between ranks, as in training."""
    found = []
    for rank in range(num_ranks):
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(100 + rank)
        found.append([x for batch in samples(loader, rank, num_ranks, epoch) for x in batch])
    return found


def loader_of(sampler: Any, batch_size: int = 2) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(40)), batch_size, sampler=sampler)


def test_a_sampler_of_a_subset_is_kept_to_its_subset_and_shuffles_anew_each_epoch() -> None:
    loader = loader_of(SubsetRandomSampler(range(20)))
    a, b = shards(loader, 2)
    assert len(a) == len(b) == 10
    assert sorted(a + b) == list(range(20))
    assert shards(loader, 2) == [a, b] != shards(loader, 2, epoch=1)


def test_where_the_ranks_do_not_divide_what_is_drawn_they_still_take_as_many_batches() -> None:
    a, b, c = shards(loader_of(SubsetRandomSampler(range(20))), 3)
    assert len(a) == len(b) == len(c) == 7
    assert set(a + b + c) == set(range(20))


def test_a_weighted_sampler_keeps_its_weights_and_its_number_of_samples() -> None:
    weights = [1.0 if index % 4 == 0 else 0.0 for index in range(40)]
    a, b = shards(loader_of(WeightedRandomSampler(weights, num_samples=60)), 2)
    assert len(a) == len(b) == 30
    assert {index % 4 for index in a + b} == {0}


def test_a_random_sampler_keeps_its_number_of_samples_and_its_replacement() -> None:
    data = TensorDataset(torch.arange(40))
    a, b = shards(DataLoader(data, 2, sampler=RandomSampler(data, num_samples=4)), 2)
    assert len(a) == len(b) == 2
    assert len(set(a + b)) == 4
    a, b = shards(DataLoader(data, 2, sampler=RandomSampler(data, replacement=True)), 2)
    assert len(set(a + b)) < 40


def test_a_sampler_of_other_data_than_the_loader_s_keeps_to_it() -> None:
    assert shards(loader_of(SequentialSampler(range(6))), 2) == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.pattern("samplers of the user's own", works="drawn alike on all ranks")
@pytest.mark.parametrize("how", [lambda n: torch.randperm(n).tolist(), np.random.permutation, shuffled])
def test_a_sampler_of_the_user_s_draws_alike_on_ranks_seeded_differently(how: Any) -> None:
    class Own(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            return iter([int(index) for index in how(40)])

        def __len__(self) -> int:
            return 40

    assert sorted(itertools.chain(*shards(loader_of(Own()), 4))) == list(range(40))


def test_a_generator_of_the_user_s_draws_alike_on_ranks_that_seeded_it_differently() -> None:
    def shard(rank: int) -> list[int]:
        sampler = SubsetRandomSampler(range(40), generator=torch.Generator().manual_seed(rank))
        return [x for batch in samples(loader_of(sampler), rank, 2) for x in batch]

    assert sorted(shard(0) + shard(1)) == list(range(40))


@pytest.mark.parametrize("source", ["sampler", "stream"])
def test_drawing_leaves_the_generators_of_training_as_they_were(source: str) -> None:
    loader = loader_of(SubsetRandomSampler(range(20))) if source == "sampler" else DataLoader(ShuffledStream(), 2)
    batches = ShardedLoader(loader, 0, 2, seed=3).epoch(0)
    torch.manual_seed(5)
    random.seed(5)
    next(batches), next(batches)
    drawn = torch.rand(3).tolist(), random.random()
    torch.manual_seed(5)
    random.seed(5)
    assert drawn == (torch.rand(3).tolist(), random.random())


@pytest.mark.pattern("batch samplers", works="ranks take turns at their batches")
def test_ranks_take_turns_at_the_batches_of_a_sampler_of_batches() -> None:
    batches = BatchSampler(SubsetRandomSampler(range(20)), 2, drop_last=False)
    a, b = shards(DataLoader(TensorDataset(torch.arange(40)), batch_sampler=batches), 2)
    assert len(a) == len(b) == 10
    assert sorted(a + b) == list(range(20))


class OwnShare(Sampler[int]):
    """Shares data out by itself, without being a DistributedSampler."""

    num_replicas, rank = 2, 1

    def __iter__(self) -> Iterator[int]:
        return iter([7, 9])


@pytest.mark.pattern("`DistributedSampler`", works="left as it is")
def test_a_sampler_that_knows_of_ranks_is_left_alone_also_inside_one_of_batches() -> None:
    assert samples(loader_of(OwnShare()), 1, 2) == [[7, 9]]
    batches = BatchSampler(OwnShare(), 1, drop_last=False)
    assert samples(DataLoader(TensorDataset(torch.arange(40)), batch_sampler=batches), 1, 2) == [[7], [9]]


class Shuffled(Sampler[int]):
    """A sampler of the user's own, which all ranks draw alike; it shuffles by the epoch that it is told."""

    epoch = 0

    def set_epoch(self, number: int) -> None:
        self.epoch = number

    def __iter__(self) -> Iterator[int]:
        return iter(random.Random(self.epoch).sample(range(40), 40))

    def __len__(self) -> int:
        return 40


@pytest.mark.pattern("`set_epoch`", works="the script's is kept; else epochs are counted")
@pytest.mark.parametrize("by", ["a sampler that knows of ranks", "one that does not"])
def test_the_epoch_that_a_script_sets_is_kept_and_one_that_it_does_not_set_is_counted(by: str) -> None:
    dataset = TensorDataset(torch.arange(40))

    def orders(epochs: list[int | None]) -> list[Any]:
        sampler: Any = DistributedSampler(dataset, 2, 1) if by == "a sampler that knows of ranks" else Shuffled()
        loaders, loader = Loaders(1, 2, seed=3), DataLoader(dataset, 4, sampler=sampler)
        drawn = []
        for counted, epoch in enumerate(epochs):
            if epoch is not None:
                sampler.set_epoch(epoch)
            drawn.append([batch[0].tolist() for batch in loaders.shard(loader).epoch(counted)])
        return drawn

    of_0, of_1, of_2 = orders([None, None, None])
    assert len({str(order) for order in (of_0, of_1, of_2)}) == 3
    assert orders([2, 0, 1]) == [of_2, of_0, of_1], "as a resumed script does"
    assert orders([0, 2, 1]) == [of_0, of_2, of_1]


@pytest.mark.pattern("a sampler without a length", refused="named")
def test_a_sampler_without_a_length_is_refused_by_name() -> None:
    class Endless(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            return itertools.count()

    with pytest.raises(UserError, match=r"sampler: 'Endless': cannot be shared among ranks.* give it a __len__"):
        ShardedLoader(loader_of(Endless()), 0, 2, seed=0)


def test_what_is_done_with_a_loader_is_said_alike_on_every_rank() -> None:
    stream, subset = DataLoader(Stream(), 2), loader_of(SubsetRandomSampler(range(20)))
    assert {ShardedLoader(stream, rank, 3, 0).how for rank in range(3)} == {
        "ranks take turns: each trains on every 3rd batch"
    }
    assert {ShardedLoader(subset, rank, 2, 0).how for rank in range(2)} == {
        "its SubsetRandomSampler draws alike on all ranks: each takes every 2nd sample; the batch size is per rank"
    }


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(14))


@pytest.mark.pattern("`IterableDataset`, any iterable", works="ranks take turns at its batches")
def test_ranks_take_turns_at_the_batches_of_a_stream_and_drop_a_round_that_is_not_complete() -> None:
    assert samples(DataLoader(Stream(), 2), 0, 3) == [[0, 1], [6, 7]]
    assert samples(DataLoader(Stream(), 2), 2, 3) == [[4, 5], [10, 11]]


class ShuffledStream(IterableDataset[int]):
    """Draws as it goes along, from the global generators."""

    def __iter__(self) -> Iterator[int]:
        left = list(range(24))
        while left:
            yield left.pop(int(torch.randint(len(left), ())) if len(left) % 2 else random.randrange(len(left)))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_ranks_seeded_differently_take_turns_at_the_same_shuffled_stream(num_workers: int) -> None:
    stream = DataLoader(ShuffledStream(), 2, num_workers=num_workers)
    a, b = shards(stream, 2)
    assert sorted(a + b) == list(range(24))
    assert [a, b] != shards(stream, 2, epoch=1)
