"""One epoch's batches, some of which trials run through more than once.

Trials cost time but no data: the batches that they draw are replayed, first for every further candidate, then for the
real steps, each as the loader made it (a loop may take a batch to pieces). Where the loader draws from the random
generators, they are brought to where its drawing left them. So training goes on bit for bit as if the trials had never
been.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trimtab.checkpoint.random_state import RandomState
from trimtab.data.position import Drawing


@dataclass(frozen=True)
class _Drawn:
    """A batch, and the random generators after it was drawn; None where drawing it left them alone."""

    batch: Any
    generators: RandomState | None

    @classmethod
    def from_source(cls, source: Iterator[Any]) -> _Drawn:
        before = RandomState.capture()
        batch = next(source)
        after = RandomState.capture()
        return cls(batch, None if after.equals(before) else after)

    def copy(self) -> _Drawn:
        return _Drawn(copy.deepcopy(self.batch), self.generators)


class Replay:
    """An iterator of batches with a bookmark."""

    def __init__(
        self,
        source: Iterator[Any],
        num_batches: int | None,
        number: int = 0,
        began: RandomState | None = None,
        drawing: Drawing | None = None,
    ) -> None:
        """Draw from ``source``.

        Args:
            source: Gives the batches.
            num_batches: How many; None where the loader cannot say.
            number: Number of the epoch, which decides how it shuffles.
            began: The random generators as they were when ``source`` was made.
            drawing: How ranks draw the epoch.
        """
        self._source, self.number, self.began, self.drawing = source, number, began, drawing or Drawing(1)
        self._ahead: deque[_Drawn] = deque()
        self._record: list[_Drawn] | None = None
        self.num_batches = num_batches
        self._num_given = 0
        self._last: Any = None
        self.num_since_step = 0
        """Batches given since the loop's last step."""
        self.has_stepped = False
        """True if the loop has taken any step, and was not idle while another did."""
        self.is_counted = False
        """True if the loop counts as one that has trained."""
        self.num_a_step = 1
        """Batches that its last step took."""

    def count(self) -> None:
        """Count the loop as one that has trained."""
        self.is_counted = True

    def next(self) -> Any:
        """Return the next batch; raise StopIteration at the end of the epoch.

        Where the epoch ends early on this rank, after a mark, those since the mark once more: a trial has as many steps
        on every rank, also on one whose loop leaves batches out.
        """
        try:
            drawn = self._draw()
        except StopIteration:
            if not self._record:
                raise
            return self._give(self._record[self._num_given % len(self._record)].copy())
        if self._record is not None:
            self._record.append(drawn.copy())  # as it is before the loop has it
        self._num_given += 1
        self._last = drawn.batch
        return self._give(drawn)

    def _draw(self) -> _Drawn:
        if self._ahead:
            return self._ahead.popleft()
        return _Drawn(next(self._source), None) if self._record is None else _Drawn.from_source(self._source)

    def stepped(self, *, in_trial: bool) -> None:
        """Note that the loop has taken a step."""
        self.has_stepped |= self.num_since_step > 0
        if not in_trial:
            self.num_a_step = max(1, self.num_since_step)
        self.num_since_step = 0

    @property
    def is_empty(self) -> bool:
        """True if no batch was given, in this run or in the one that it resumes."""
        return self._num_given == 0

    @property
    def num_left(self) -> int:
        """Batches left in the epoch; 0 where the loader cannot say, so that no trial crosses its end."""
        return 0 if self.num_batches is None else self.num_batches - self._num_given

    @property
    def num_trained(self) -> int:
        """Batches of which steps were made that stay."""
        return self._num_given - (self.num_since_step if self._record is None else len(self._record))

    def skip(self, num_batches: int) -> None:
        """Draw so many that steps were made of before, in an earlier run, and drop them."""
        for _ in range(num_batches):
            next(self._source, None)
        self._num_given = num_batches

    @property
    def why_not_replayed(self) -> str | None:
        """The reason why batches like the last cannot be given twice; None if they can."""
        try:
            copy.deepcopy(self._last)
        except Exception as error:  # whatever a batch's own way of copying raises
            return f"batches of {type(self._last).__name__} cannot be copied ({type(error).__name__}: {error})"
        return None

    def mark(self) -> None:
        """Remember the batches given from here on."""
        self._record = []

    def rewind(self) -> None:
        """Go back to the mark."""
        assert self._record is not None, "mark comes before rewind"
        self._ahead.extendleft(reversed(self._record))
        self._num_given -= len(self._record)
        self._record = None
        self.num_since_step = 0

    def _give(self, drawn: _Drawn) -> Any:
        if drawn.generators is not None:
            drawn.generators.restore()
        self.num_since_step += 1
        return drawn.batch
