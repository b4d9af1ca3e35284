"""Copies a user's loader, and gives the copy another sampler; everything else stays as it is.

A `DataLoader` does not let its sampler be replaced, and a new one made from its arguments would lose what a subclass
adds. So the loader is copied attribute by attribute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, Sampler

#: Attributes that are not copied: the samplers, and the iterator that owns the workers.
_OWN = ("sampler", "batch_sampler", "_iterator")


class CountedSampler(Sampler[Any]):
    """Draws what another sampler draws, and counts how often it was iterated."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.num_draws = 0

    def set_epoch(self, number: int) -> None:
        """Draw as in that epoch from the next `__iter__` on."""
        self.source.set_epoch(number)

    def __iter__(self) -> Iterator[Any]:
        self.num_draws += 1
        return iter(self.source)

    def __len__(self) -> int:
        return len(self.source)


class LoaderCopy:
    """A copy of a loader that draws by ``sampler``: batches where the loader's own sampler draws batches, else samples.

    It holds no reference to the loader, and so does not keep it alive.
    """

    def __init__(self, sampler: CountedSampler) -> None:
        self.sampler = sampler
        self.ignores_sampler = False
        """True if iterating it turned out not to draw by its sampler."""
        self._copy: Any = None

    def ignore_sampler(self) -> None:
        """Note that iterating the copy does not draw by its sampler."""
        self.ignores_sampler = True

    def follow(self, loader: Any) -> Any:
        """Return the copy, after every attribute that was changed on its loader since is changed on it too."""
        if self._copy is None:
            self._copy = object.__new__(type(loader))
            vars(self._copy).update(_iterator=None, **_drawing(loader, self.sampler))
        vars(self._copy).update({name: value for name, value in vars(loader).items() if name not in _OWN})
        return self._copy


def draws_batches(loader: Any) -> bool:
    """Return whether the loader draws whole batches, by a batch sampler of the user's own."""
    by = loader.batch_sampler
    return by is not None and (loader.batch_size is None or not isinstance(by, BatchSampler))


def iterates_by_itself(loader: Any) -> bool:
    """Return whether its class defines iteration itself, and so may not draw by its sampler."""
    kind = type(loader)
    return kind.__iter__ is not DataLoader.__iter__ or kind._get_iterator is not DataLoader._get_iterator


def has_begun(loader: Any) -> bool:
    """Return whether the loader holds an iterator that it began before anybody asked for an epoch."""
    return any(isinstance(value, Iterator) for name, value in vars(loader).items() if name != "_iterator")


def _drawing(loader: Any, sampler: Any) -> dict[str, Any]:
    """Return the copy's samplers."""
    if loader.batch_sampler is None:
        return {"sampler": sampler, "batch_sampler": None}
    if draws_batches(loader):
        return {"sampler": loader.sampler, "batch_sampler": sampler}
    batches = object.__new__(type(loader.batch_sampler))
    vars(batches).update(vars(loader.batch_sampler), sampler=sampler)
    return {"sampler": sampler, "batch_sampler": batches}
