"""What draws a loader's samples, and torch's own samplers in particular."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from trimtab.data.loader_clone import draws_batches


def drawn_by(loader: Iterable[Any]) -> Any:
    """Return what draws a loader's samples, or its batches where these are drawn as a whole; None for a stream."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    return loader.batch_sampler if draws_batches(loader) else loader.sampler


def draws_everything(sampler: Any, loader: Any) -> bool:
    """Return whether the sampler is torch's own, and draws every sample of the loader's data exactly once."""
    if loader.batch_size is None or draws_batches(loader):
        return False
    if getattr(sampler, "data_source", None) is not loader.dataset:
        return False
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return type(sampler) is SequentialSampler


def distributed(sampler: Any, loader: Any, rank: int, num_ranks: int, seed: int) -> DistributedSampler[Any]:
    """Return the sampler by which a rank draws its share, where `draws_everything` holds."""
    return DistributedSampler(
        loader.dataset,
        num_replicas=num_ranks,
        rank=rank,
        shuffle=isinstance(sampler, RandomSampler),
        seed=seed,
        drop_last=loader.drop_last,
    )
