"""RedSync: bisection between the mean and the largest magnitude (Fang et al., RedSync, 2019, Algorithm 3)."""

from __future__ import annotations

from torch import Tensor

from trimtab import kernels
from trimtab.kernels import FlatGrad
from trimtab.sparsifiers.threshold_selector import Key, ThresholdSelector

#: The bisection ends where what is left between its bounds is no more than this share of maximum - mean.
EPSILON = 0.2


class RedSync(ThresholdSelector):
    """Selects k / 2 to 2 k elements of each segment.

    By design the bisection stops after three halvings. It knows eight places between the mean and the largest
    magnitude, and misses by far if the k-th largest lies between two of them: at 0.1, a fifth of k reach its threshold
    of a normal gradient, and a hundredth of Student-t's (3). The count is then clamped as `ThresholdSelector` says.
    """

    name = "redsync"
    lower, upper = 0.5, 2.0

    def _threshold(self, grad: FlatGrad, residual: Tensor | None, k: int, key: Key) -> float:
        assert isinstance(grad, Tensor)
        everything = kernels.tail(grad, 0.0)
        mean, largest = everything.mean, everything.largest
        left, right, threshold = 0.0, 1.0, mean
        while right - left > EPSILON:
            middle = left + (right - left) / 2
            threshold = mean + middle * (largest - mean)
            count = kernels.tail(grad, threshold).count
            if k < count < 2 * k:
                break
            if count < k / 2:
                right = middle
            else:
                left = middle
        return threshold
