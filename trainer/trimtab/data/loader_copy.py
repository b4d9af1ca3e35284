"""A user's loader with another sampler in it: whatever else it is or does stays its own.

A `DataLoader` cannot be given another sampler, and making one anew from its arguments would lose what a subclass adds.
So it is copied, attribute by attribute, and the copy gets the sampler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, Sampler

#: A copy's own, which it does not take over from its loader: what draws, and the iterator that owns its workers.
_OWN = ("sampler", "batch_sampler", "_iterator")


class CountedSampler(Sampler[Any]):
    """Draws what another sampler draws, and knows whether it was ever asked to."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.num_draws = 0

    def set_epoch(self, number: int) -> None:
        self._source.set_epoch(number)

    def __iter__(self) -> Iterator[Any]:
        self.num_draws += 1
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)


class LoaderCopy:
    """The copy of a loader that draws by ``sampler``: of batches where the loader's draws whole ones, else of samples.

    It holds no reference to the loader itself, whose life may therefore be its own.
    """

    def __init__(self, sampler: CountedSampler) -> None:
        self.sampler = sampler
        self.ignores_sampler = False
        """Whether iterating it turned out not to draw by its sampler."""
        self._copy: Any = None

    def follow(self, loader: Any) -> Any:
        """The copy, with everything that was changed about its loader since."""
        if self._copy is None:
            self._copy = object.__new__(type(loader))
            vars(self._copy).update(_iterator=None, **_drawing(loader, self.sampler))
        vars(self._copy).update({name: value for name, value in vars(loader).items() if name not in _OWN})
        return self._copy


def draws_batches(loader: Any) -> bool:
    """Whether what it draws by are whole batches, made by a sampler of the user's own."""
    by = loader.batch_sampler
    return by is not None and (loader.batch_size is None or not isinstance(by, BatchSampler))


def iterates_by_itself(loader: Any) -> bool:
    """Whether its class says how it is iterated, so that it may or may not draw by its sampler."""
    kind = type(loader)
    return kind.__iter__ is not DataLoader.__iter__ or kind._get_iterator is not DataLoader._get_iterator


def has_begun(loader: Any) -> bool:
    """Whether it keeps an iterator of its own, begun before anybody asked for an epoch."""
    return any(isinstance(value, Iterator) for name, value in vars(loader).items() if name != "_iterator")


def _drawing(loader: Any, sampler: Any) -> dict[str, Any]:
    """The copy's samplers."""
    if loader.batch_sampler is None:
        return {"sampler": sampler, "batch_sampler": None}
    if draws_batches(loader):
        return {"sampler": loader.sampler, "batch_sampler": sampler}
    batches = object.__new__(type(loader.batch_sampler))
    vars(batches).update(vars(loader.batch_sampler), sampler=sampler)
    return {"sampler": sampler, "batch_sampler": batches}
