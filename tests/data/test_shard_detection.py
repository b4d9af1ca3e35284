"""Loaders whose data are split by rank before they come to the session: they are left as they are, and it is said so.

What other libraries make of a loader is stood in for by small classes with their names and attributes.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from trimtab.data.sharded_loader import ShardedLoader

NUM_SAMPLES, NUM_RANKS = 40, 4
DATA = TensorDataset(torch.arange(NUM_SAMPLES))


def every_sample_of(loader: Any, rank: int, **said: Any) -> list[int]:
    batches = ShardedLoader(loader, rank, NUM_RANKS, seed=3, **said).epoch(0)
    return [int(x) for batch in batches for x in (batch[0] if isinstance(batch, list) else batch).flatten()]


class Stream(IterableDataset[int]):
    """Splits by rank, and nothing shows it."""

    def __init__(self, rank: int) -> None:
        self._mine = range(rank, NUM_SAMPLES, NUM_RANKS)

    def __iter__(self) -> Iterator[int]:
        return iter(self._mine)


class OwnSplit(Stream):
    """What people write: the data set knows its rank."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.rank, self.world_size = rank, NUM_RANKS


class BatchSamplerShard(BatchSampler):
    """accelerate's."""

    def __init__(self, batch_sampler: BatchSampler, num_processes: int, process_index: int) -> None:
        self.batch_sampler, self.num_processes, self.process_index = batch_sampler, num_processes, process_index
        self.batch_size, self.drop_last = batch_sampler.batch_size, batch_sampler.drop_last

    def __len__(self) -> int:
        return len(self.batch_sampler) // self.num_processes

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.batch_sampler, self.process_index, None, self.num_processes)


class DataLoaderShard:
    """accelerate's: passes for the loader that it holds, and iterates it."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.base_dataloader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "base_dataloader":
            raise AttributeError
        return getattr(self.base_dataloader, name)

    @property
    def __class__(self) -> Any:
        return self.base_dataloader.__class__

    def __len__(self) -> int:
        return len(self.base_dataloader)

    def __iter__(self) -> Iterator[Any]:
        yield from self.base_dataloader


DataLoaderShard.__module__ = "accelerate.data_loader"


def prepared(rank: int) -> Any:
    batches = BatchSamplerShard(BatchSampler(SequentialSampler(DATA), 2, False), NUM_RANKS, rank)
    return DataLoaderShard(DataLoader(DATA, batch_sampler=batches))


def prepared_stream(rank: int) -> Any:
    return DataLoaderShard(DataLoader(Stream(rank), 2))


@pytest.fixture
def accelerate(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets accelerate's state say that this process is of that rank."""

    def be(rank: int) -> None:
        module = ModuleType("accelerate.state")
        module.PartialState = lambda: SimpleNamespace(num_processes=NUM_RANKS, process_index=rank)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "accelerate.state", module)

    return be


class SplitByNode(Stream):
    """A stream of Hugging Face's, after split_dataset_by_node."""

    @dataclass
    class DistributedConfig:
        rank: int
        world_size: int

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._distributed = self.DistributedConfig(rank, NUM_RANKS)


def split_by_node(source: Any, group: Any = None) -> Any:
    """webdataset's stage; it asks the environment for the rank."""
    return source


class Pipeline(Stream):
    """webdataset's, of stages."""

    def __init__(self, rank: int, stage: Any = split_by_node) -> None:
        super().__init__(rank)
        self.pipeline = [["a.tar", "b.tar"], stage, len]


class Wrapper:
    """Moves batches elsewhere, as prefetchers do, or shows how far they are."""

    def __init__(self, loader: Any, name: str = "loader") -> None:
        self.__dict__[name] = loader
        self.name = name

    def __iter__(self) -> Iterator[Any]:
        yield from self.__dict__[self.name]


def own_sampler(rank: int) -> DataLoader[Any]:
    return DataLoader(DATA, 2, sampler=DistributedSampler(DATA, NUM_RANKS, rank, shuffle=False))


SPLIT = {
    "a sampler": (own_sampler, "DistributedSampler"),
    "a sampler inside a wrapper": (lambda rank: Wrapper(own_sampler(rank)), "DistributedSampler"),
    "a sampler inside two progress bars": (
        lambda rank: Wrapper(Wrapper(own_sampler(rank), "iterable"), "iterable"),
        "DistributedSampler",
    ),
    "a sampler inside a wrapper of its own words": (
        lambda rank: Wrapper(own_sampler(rank), "_dl"),
        "DistributedSampler",
    ),
    "a loader's iterator": (lambda rank: iter(own_sampler(rank)), "DistributedSampler"),
    "a data set that knows its rank": (lambda rank: DataLoader(OwnSplit(rank), 2), "OwnSplit"),
    "accelerate": (prepared, "DataLoaderShard"),
    "accelerate, of a stream": (prepared_stream, "DataLoaderShard"),
    "datasets": (lambda rank: DataLoader(SplitByNode(rank), 2), "DistributedConfig"),
    "webdataset": (lambda rank: DataLoader(Pipeline(rank), 2), "split_by_node"),
    "webdataset, a group given": (
        lambda rank: DataLoader(Pipeline(rank, partial(split_by_node, group=None)), 2),
        "split_by_node",
    ),
}


@pytest.mark.pattern("accelerate's loaders, webdataset, `split_dataset_by_node`", works="seen, and left as they are")
@pytest.mark.parametrize("kind", SPLIT)
def test_every_sample_is_trained_on_where_the_loader_is_split_already(kind: str, accelerate: Any) -> None:
    make, name = SPLIT[kind]
    found, said = [], set()
    for rank in range(NUM_RANKS):
        accelerate(rank)
        found += every_sample_of(make(rank), rank)
        said.add(ShardedLoader(make(rank), rank, NUM_RANKS, seed=3).how)
    assert sorted(found) == list(range(NUM_SAMPLES))
    assert said == {f"already sharded by its {name}"}


def test_of_a_split_that_nothing_shows_the_script_says_so() -> None:
    streams = [DataLoader(Stream(rank), 2) for rank in range(NUM_RANKS)]
    found = [x for rank, stream in enumerate(streams) for x in every_sample_of(stream, rank, sharded=True)]
    assert sorted(found) == list(range(NUM_SAMPLES))
    how = ShardedLoader(streams[0], 0, NUM_RANKS, seed=3, sharded=True).how
    assert how == "taken as it is: the script says that it is sharded already"


def test_what_the_script_says_is_sharded_is_taken_though_its_sampler_seems_of_other_ranks() -> None:
    loader = DataLoader(DATA, 2, sampler=DistributedSampler(DATA, num_replicas=2, rank=1, shuffle=False))
    assert every_sample_of(loader, 0, sharded=True) == list(range(1, NUM_SAMPLES, 2))


def test_a_data_set_whose_attributes_cannot_be_asked_for_is_shared_out_like_any_other() -> None:
    class Touchy(TensorDataset):
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name) if name.startswith("__") else RuntimeError(name)

    loader = DataLoader(Touchy(torch.arange(NUM_SAMPLES)), 2)
    found = [x for rank in range(NUM_RANKS) for x in every_sample_of(loader, rank)]
    assert sorted(found) == list(range(NUM_SAMPLES))
