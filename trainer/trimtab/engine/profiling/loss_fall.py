"""Fall of a job's loss in an iteration, from one profile to the next."""

from __future__ import annotations

from collections import deque
from statistics import fmean

#: Losses whose mean is compared with that of as many before: one batch differs from the next by more than it falls.
_WINDOW = 20
#: Iterations in which the fall is told apart from that noise.
_FEWEST_BETWEEN = 15


class LossFall:
    """Measures how much the loss falls in an iteration."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=_WINDOW)
        self._since: tuple[float, float] | None = None
        """The middle of the iterations whose mean it was, and that."""
        self._fall: float | None = None

    def add(self, loss: float | None) -> None:
        """Add the loss of the next iteration; None where it is not known."""
        if loss is not None:
            self._losses.append(loss)

    def until(self, number: int) -> float | None:
        """Return how much the loss falls in an iteration, until ``number``, since an earlier call.

        Negative where the loss rises; None until it can be told.
        """
        if not self._losses:
            return self._fall
        middle, mean, since = number - (len(self._losses) - 1) / 2, fmean(self._losses), self._since
        if since is None or middle >= since[0] + _FEWEST_BETWEEN:
            self._since = middle, mean
            if since is not None:
                self._fall = (since[1] - mean) / (middle - since[0])
        return self._fall
