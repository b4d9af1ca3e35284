"""What `Session.batches` gives: an iterator over an epoch that can be asked what a loader is asked."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any


class Batches(Iterator[Any]):
    """The batches of one epoch of one rank; ``len`` is their number, and all else that is asked the loader answers.

    So a progress bar has its total, and a function that was handed a loader finds ``dataset`` and ``batch_size``.
    """

    def __init__(self, batches: Generator[Any], num_batches: int | None, loader: Iterable[Any]) -> None:
        """``num_batches``: None where the loader cannot say."""
        self._batches, self._num_batches, self._loader = batches, num_batches, loader

    def __next__(self) -> Any:
        return next(self._batches)

    def __len__(self) -> int:
        """Batches of the epoch on this rank; those of trials are not counted. `TypeError` where it is not known."""
        if self._num_batches is None:
            raise TypeError(f"object of type {type(self._loader).__name__!r} has no len()")
        return self._num_batches

    def __getattr__(self, name: str) -> Any:
        """What the loader has."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._loader, name)

    def close(self) -> None:
        """Leave the loop, as ``break`` does."""
        self._batches.close()
