"""What the job's own loss tells: how fast it falls, and whether gradients that come late have made it rise."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from math import sqrt
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


#: Losses whose mean is compared with that of those before them.
_NOW, _BEFORE = 3, 20
#: Deviations of that difference from which it is no noise: one is known from twenty losses, and asked for in each step.
_CERTAIN = 6.0
#: One deviation over the mean distance of two neighbours that differ by noise alone.
_DEVIATION = 1 / 1.128


class DelayWatch:
    """Compares the latest losses with those before them, which may rise where updates come late.

    Heavy-ball SGD is stable while the learning rate times the curvature is below 2 (1 + momentum). With gradients that
    come one iteration late, only below 1 - momentum. In between the loss may fall as its gradients promise until the
    first late update, and rise from then on by a factor in each iteration.
    """

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=_BEFORE + _NOW)
        self._num_delayed = 0
        """Iterations since updates come late; 0 where they do not."""

    def add(self, loss: float | None, *, is_delayed: bool) -> bool:
        """Add the next iteration's loss; return True, once, if losses show that the present delay does harm.

        Args:
            loss: The loss; None where it is not known.
            is_delayed: Whether updates come late in this iteration.
        """
        self._num_delayed = self._num_delayed + 1 if is_delayed else 0
        if loss is not None:
            self._losses.append(loss)
        if self._num_delayed <= _NOW or not self._has_risen():
            return False
        self._losses.clear()
        return True

    def _has_risen(self) -> bool:
        if len(self._losses) < _BEFORE + _NOW:
            return False
        losses = list(self._losses)
        before, now = losses[:_BEFORE], losses[_BEFORE:]
        noise = _DEVIATION * fmean(abs(later - sooner) for sooner, later in pairwise(before))
        rise = fmean(now) - fmean(before)
        return rise > _CERTAIN * noise * sqrt(1 / _NOW + 1 / _BEFORE)
