"""Gaussian-k: the threshold is a percent point of a normal distribution.

Shi et al., Understanding Top-k Sparsification in Distributed Deep Learning, 2019, Algorithm 1.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from torch import Tensor

from trimtab import kernels
from trimtab.kernels import FlatGrad
from trimtab.sparsifiers.threshold_selector import Key, ThresholdSelector

#: Factors of the threshold if too few, and if too many elements reach it.
LOWERED, RAISED = 0.5, 1.5


class GaussianK(ThresholdSelector):
    """Selects 2/3 k to 4/3 k elements of each segment.

    By design the estimate holds for normal gradients alone: at 0.001 ten times k elements reach it of Laplace's and of
    Student-t's (3). Three corrections, each by half of the threshold, may jump over the bounds. The count is then
    clamped as `ThresholdSelector` says.
    """

    name = "gaussian-k"
    lower, upper = 2 / 3, 4 / 3
    max_corrections = 3

    def _threshold(self, grad: FlatGrad, residual: Tensor | None, k: int, key: Key) -> float:
        assert isinstance(grad, Tensor)
        mean = float(grad.mean())
        variance = kernels.tail(grad, 0.0).squares / grad.numel() - mean * mean
        return mean + NormalDist().inv_cdf(1 - k / grad.numel() / 2) * math.sqrt(max(0.0, variance))

    def _corrected(self, threshold: float, num_over: int, k: int) -> float:
        if num_over < self.lower * k:
            return LOWERED * threshold
        return RAISED * threshold if num_over > self.upper * k else threshold
