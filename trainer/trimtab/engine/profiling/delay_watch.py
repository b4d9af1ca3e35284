"""A watch on the loss, which may rise where updates come late.

What a delay costs shows only once it is there: heavy-ball SGD is stable while the learning rate times the curvature is
below 2 (1 + momentum), but, with gradients that come one iteration late, only below 1 - momentum. In between the loss
may fall as its gradients promise until the first late update, and rise from then on by a factor in each iteration.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from math import sqrt
from statistics import fmean

#: Losses whose mean is compared with that of those before them.
_NOW, _BEFORE = 3, 20
#: Deviations of that difference from which it is no noise: one is known from twenty losses, and asked for in each step.
_CERTAIN = 6.0
#: One deviation over the mean distance of two neighbours that differ by noise alone.
_DEVIATION = 1 / 1.128


class DelayWatch:
    """Compares the latest losses with those before them."""

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
