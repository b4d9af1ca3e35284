"""The result of `Session.batches`: one rank's epochs of a loader, which can be asked what the loader is asked."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any


class Batches(Iterator[Any]):
    """One rank's share of a loader.

    As with a loader, each ``for`` is a new epoch; ``next`` draws from one epoch.

    ``len`` is the number of batches of an epoch, and the loader answers all other attributes. So a progress bar has its
    total, and a function that expects a loader finds ``dataset`` and ``batch_size``.
    """

    def __init__(
        self, begin: Callable[[], Generator[Any]], num_batches: Callable[[], int | None], loader: Iterable[Any]
    ) -> None:
        """Wrap a loader.

        Args:
            begin: Begins an epoch.
            num_batches: Returns the batches of the present epoch, or of the next one; None where the loader cannot say.
            loader: Answers every other attribute.
        """
        self._begin, self._num_batches, self._loader = begin, num_batches, loader
        self._drawn_from: Generator[Any] | None = None
        """The epoch that `__next__` draws from. An epoch of a ``for`` loop is held by that loop alone, and so ends
        where the loop is left."""
        self._last: weakref.ref[Generator[Any]] | None = None

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch, unless ``next`` has begun one that is not over."""
        return self._begun() if self._drawn_from is None else self

    def __next__(self) -> Any:
        if self._drawn_from is None:
            self._drawn_from = self._begun()
        try:
            return next(self._drawn_from)
        except StopIteration:
            self._drawn_from = None
            raise

    def _begun(self) -> Generator[Any]:
        epoch = self._begin()
        self._last = weakref.ref(epoch)
        return epoch

    def __len__(self) -> int:
        """Return the epoch's batches on this rank, without those of trials. Raise `TypeError` where it is not known."""
        num_batches = self._num_batches()
        if num_batches is None:
            raise TypeError(f"object of type {type(self._loader).__name__!r} has no len()")
        return num_batches

    def __getattr__(self, name: str) -> Any:
        """Return the loader's attribute."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._loader, name)

    def close(self) -> None:
        """Leave the loop, as ``break`` does."""
        epoch = self._last() if self._last is not None else None
        if epoch is not None:
            epoch.close()
        self._drawn_from = None
