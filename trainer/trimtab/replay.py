"""One epoch's batches, some of which trials run through more than once.

Trials cost time but no data: the batches that they draw are replayed, first for every further candidate, then for the
real steps, each with the random generators as they were right after the batch was drawn, so that training goes on bit
for bit as if the trials had never been.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from trimtab.checkpoint.random_state import RandomState


class Replay:
    """An iterator of batches with a bookmark."""

    def __init__(self, source: Iterator[Any], num_batches: int | None) -> None:
        self._source = source
        self._ahead: deque[tuple[Any, RandomState]] = deque()
        self._record: list[tuple[Any, RandomState]] | None = None
        self._num_batches = num_batches
        self._num_given = 0

    def next(self) -> Any:
        """The next batch; raises StopIteration at the end of the epoch."""
        if self._ahead:
            batch, generators = self._ahead.popleft()
            generators.restore()
            if self._record is not None:
                self._record.append((batch, generators))
        else:
            batch = next(self._source)
            if self._record is not None:
                self._record.append((batch, RandomState.capture()))
        self._num_given += 1
        return batch

    @property
    def num_left(self) -> int:
        """Batches left in the epoch; 0 where the loader cannot say, so that no trial crosses its end."""
        return 0 if self._num_batches is None else self._num_batches - self._num_given

    def mark(self) -> None:
        """Remember the batches given from here on."""
        self._record = []

    def rewind(self) -> None:
        """Go back to the mark."""
        assert self._record is not None, "mark comes before rewind"
        self._ahead.extendleft(reversed(self._record))
        self._num_given -= len(self._record)
        self._record = None
