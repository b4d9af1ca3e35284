"""Extra computing time from ranks that wait for each other, by how many steps they take between exchanges.

An exchange begins when the last rank has come to it, so a step computes for as long as the slowest of the ranks in that
very step. Over H local steps that evens out: the slowest of their sums is less than the sum of the slowest. Only that
one rank is slower than the others at all times is not evened out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import sqrt
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.control.cost_model.clipped_mean import MOST_MEDIANS

#: Exchanges, of one number of local steps, whose arrivals are kept; and with how many they begin to count.
_NUM_KEPT, _FEWEST = 50, 8


class Waits:
    """The times that each rank took to come to the last exchanges, by the number of local steps."""

    def __init__(self) -> None:
        self._arrivals: dict[int, deque[tuple[float, ...]]] = {}
        self._known: dict[int, float] = {}

    def observe(self, local_steps: int, arrivals: Sequence[float]) -> None:
        """Learn how long each rank took from one exchange to the next [s]; nothing if it is not known."""
        if not any(arrivals):
            return
        if any(len(seen[0]) != len(arrivals) for seen in self._arrivals.values()):
            self._arrivals.clear()  # what a checkpoint of another number of ranks knew
        self._arrivals.setdefault(local_steps, deque(maxlen=_NUM_KEPT)).append(tuple(arrivals))
        self._known.clear()

    def seconds(self, local_steps: int) -> float:
        """Return how much longer a mean step is than that of the rank which is slowest in the long run [s].

        What was seen of fewer local steps is put together as it came, for a rank that is slow stays so for a while.
        From what was seen of more, and beyond half of what was seen, the wait goes by the root of their numbers. It is
        0 until enough was seen.
        """
        if local_steps not in self._known:
            self._known[local_steps] = self._seconds(local_steps)
        return self._known[local_steps]

    def state_dict(self) -> dict[str, Any]:
        """Return the arrivals, as JSON data."""
        return {str(local_steps): [list(each) for each in seen] for local_steps, seen in self._arrivals.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._arrivals = {int(each): deque(map(tuple, seen), maxlen=_NUM_KEPT) for each, seen in state.items()}
        self._known.clear()

    def _seconds(self, local_steps: int) -> float:
        seen = sorted(each for each, arrivals in self._arrivals.items() if len(arrivals) >= _FEWEST)
        if not seen:
            return 0.0
        nearest = max((each for each in seen if each <= local_steps), default=seen[0])
        arrivals = np.array(self._arrivals[nearest])
        last = arrivals.max(axis=1)
        most = MOST_MEDIANS * median(last.tolist())
        if last.max() > most:
            arrivals = np.minimum(arrivals, most)
        num_together = max(1, min(round(local_steps / nearest), len(arrivals) // 2))
        num_steps = num_together * nearest
        return _waited(arrivals, num_together) / num_steps * sqrt(num_steps / local_steps)


def _waited(arrivals: NDArray[np.float64], num_together: int) -> float:
    """Return how long the rank that is slowest in the long run waits after so many exchanges in a row, on average."""
    slowest = arrivals.sum(axis=0).argmax()
    if num_together > 1:
        sums = np.zeros((len(arrivals) + num_together, arrivals.shape[1]))
        np.cumsum(arrivals[np.arange(-num_together + 1, len(arrivals))], axis=0, out=sums[1:])
        arrivals = sums[num_together:] - sums[:-num_together]
    return float(arrivals.max(axis=1).mean() - arrivals[:, slowest].mean())
