"""Which batches belong to which rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from trimtab.sharding import Sharded


def samples(loader: Any, rank: int, num_ranks: int, epoch: int = 0) -> list[list[int]]:
    batches = Sharded(loader, rank, num_ranks, seed=3).epoch(epoch)
    return [(batch[0] if isinstance(batch, list) else batch).flatten().tolist() for batch in batches]


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
    assert samples(DataLoader(dataset, 2, sampler=sampler), 0, 3) == [[2, 5], [8, 11]]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(14))


def test_ranks_take_turns_at_the_batches_of_a_stream_and_drop_a_round_that_is_not_complete() -> None:
    assert samples(DataLoader(Stream(), 2), 0, 3) == [[0, 1], [6, 7]]
    assert samples(DataLoader(Stream(), 2), 2, 3) == [[4, 5], [10, 11]]
