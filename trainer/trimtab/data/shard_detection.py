"""Finds out whether a loader's data are split among the ranks already, by something that the loader carries.

Samplers, data sets and loaders of other libraries are recognised by their attributes, so that none of these libraries
is needed here: torch's `DistributedSampler` and its kin (``num_replicas``, ``rank``), accelerate's shards
(``num_processes``, ``process_index``) and prepared loaders, `datasets.distributed.split_dataset_by_node`, webdataset's
``split_by_node``, a `sharding_filter` of torch's data pipes, and data sets of one's own that know ``world_size`` and
``rank``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import torch.distributed as dist
from torch.utils.data import DataLoader

from trimtab.data.batches import Batches

#: Names of the attributes that hold the number of ranks, and one's own rank.
_NAMES = (("num_replicas", "rank"), ("num_processes", "process_index"), ("world_size", "rank"))
#: Attributes in which a loader, a sampler or a data set keeps the one that it wraps.
_CARRIES = (
    "batch_sampler",
    "sampler",
    "dataset",
    "_distributed",
    "base_dataloader",
    "dataloader",
    "loader",
    "iterable",  # of a progress bar
    "_index_sampler",  # of a loader's iterator
    "datapipe",
    "source_datapipe",
)
#: Objects that are looked at: enough for every library's layers, and an end for attributes that never end.
_MOST = 64


@dataclass(frozen=True)
class Split:
    """The part of a loader that splits its data among ranks."""

    name: str
    """Its class or function, for people."""
    by: Any
    num_ranks: int | None
    """Among how many; None where it does not tell."""
    rank: int | None
    """Whose share it gives; None where it does not tell."""


def find_split(loader: Any) -> Split | None:
    """Find what splits the loader's data among ranks, even among a single one; None where nothing shows a split."""
    among_one: Split | None = None
    looked_at: list[Any] = []
    waiting = [loader]
    while waiting and len(looked_at) < _MOST:
        each = waiting.pop(0)
        if any(each is other for other in looked_at):
            continue
        looked_at.append(each)
        split = _split_by(each)
        if split is not None and split.num_ranks != 1:
            return split
        among_one = among_one or split
        waiting += _carried(each)
    return among_one


def _split_by(thing: Any) -> Split | None:
    name = _name(thing)
    if name == "split_by_node":  # webdataset: it asks the environment for the ranks when it runs
        return Split(name, thing, None, None)
    if isinstance(thing, Batches):
        return Split("session.batches", thing, None, None)
    if name == "ShardingFilterIterDataPipe":  # torch's DataLoader tells it the ranks, if it knows of any
        return Split(name, thing, dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else None
    if (prepared := _prepared_by_accelerate(thing)) is not None:
        return prepared
    for of_all, of_one in _NAMES:
        num_ranks, rank = _attribute(thing, of_all), _attribute(thing, of_one)
        if type(num_ranks) is int and type(rank) is int:
            return Split(name, thing, num_ranks, rank)
    return None


def _prepared_by_accelerate(thing: Any) -> Split | None:
    """Recognise a loader that went through accelerate's ``prepare``, which may have split a stream without a trace."""
    for kind in type(thing).__mro__:
        if kind.__name__ in ("DataLoaderShard", "DataLoaderDispatcher") and kind.__module__.startswith("accelerate."):
            state = sys.modules["accelerate.state"].PartialState()
            return Split(kind.__name__, thing, int(state.num_processes), int(state.process_index))
    return None


def _carried(thing: Any) -> Iterator[Any]:
    for name in _CARRIES:
        if (value := _attribute(thing, name)) is not None:
            yield value
    fields = _attribute(thing, "__dict__")  # whatever a wrapper calls the loader inside
    if isinstance(fields, dict):
        yield from [value for value in fields.values() if isinstance(value, DataLoader)]
    pipeline = _attribute(thing, "pipeline")  # webdataset: the stages
    if isinstance(pipeline, list):
        yield from pipeline


def _attribute(thing: Any, name: str) -> Any:
    """Return None where there is no such attribute, or where a data set of the user's raises when asked for it."""
    try:
        return getattr(thing, name, None)
    except Exception:
        return None


def _name(thing: Any) -> str:
    """Return the name of a function (also in a `partial`), or else that of the object's class."""
    function = thing.func if isinstance(thing, partial) else thing
    return function.__name__ if isinstance(function, FunctionType) else type(thing).__name__
