"""The tail of the magnitudes near the k-th largest, estimated from a sample: Hill's decay and a standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsifiers.topk import kth_largest

#: The sample should hold this many of the k largest elements: the standard error of the count is then 10% of k.
TOP_SAMPLES = 100
#: The sample has at least this many elements, whatever k is.
MIN_SAMPLES = 4096
#: A large segment is sampled at most at one element in this many, since each sampled element is a cache miss.
MIN_SAMPLE_STRIDE = 512
#: No threshold is below the smallest positive float32: zeros are never selected for their magnitude.
SMALLEST = 2.0**-149


@dataclass(frozen=True)
class TailEstimate:
    """The estimated tail of the magnitudes: near ``threshold``, k (t / threshold)^(-1 / decay) of them reach t."""

    threshold: float
    """Threshold that about k elements should reach."""
    decay: float
    """-d log(threshold) / d log(count)."""
    error: float
    """Standard error of log(count) at the threshold."""

    def threshold_for(self, factor: float) -> float:
        """Return the threshold that ``factor`` times k elements should reach."""
        return max(SMALLEST, self.threshold * math.exp(-self.decay * math.log(factor)))

    def decay_by(self, found: CompactResult, threshold: float) -> float:
        """Return the tail's decay by the elements found at ``threshold``, or this one if too few were found."""
        if found.indices.numel() < TOP_SAMPLES or threshold <= SMALLEST:
            return self.decay
        return hill(found.values[:: found.values.numel() // TOP_SAMPLES].abs(), threshold)


def estimate_by_sample(grad: FlatGrad, residual: Tensor | None, k: int) -> TailEstimate:
    """Estimate the tail from a sample of |grad + residual|, or of |grad| without a residual; the decay is Hill's."""
    n = grad.numel()
    wanted = max(MIN_SAMPLES, min(math.ceil(TOP_SAMPLES * n / k), n // MIN_SAMPLE_STRIDE))
    magnitudes = sample_magnitudes(grad, residual, min(n, wanted))
    top = max(1, round(magnitudes.numel() * k / n))
    threshold = kth_largest(magnitudes, top)
    if not SMALLEST <= threshold < math.inf:
        return TailEstimate(SMALLEST, decay=1.0, error=1.0)
    # A sample that holds few of the k largest gives the decay of a wider tail.
    tail = max(top, min(TOP_SAMPLES, magnitudes.numel() // 4))
    start = max(SMALLEST, kth_largest(magnitudes, tail))
    return TailEstimate(threshold, hill(magnitudes[magnitudes >= start], start), error=top**-0.5)


def sample_magnitudes(grad: FlatGrad, residual: Tensor | None, num_samples: int, draw: int = 0) -> Tensor:
    """Sample |grad + residual|, or |grad| without a residual, by `kernels.sample`: float32 [num_samples]."""
    if residual is not None:
        return kernels.sample(grad, residual, num_samples, draw)
    assert isinstance(grad, Tensor)
    return kernels.sample(grad, grad, num_samples, draw) / 2  # to the bit, without a residual of zeros to read


def hill(magnitudes: Tensor, start: float) -> float:
    """Return Hill's estimate of -d log(threshold) / d log(count) at ``start``, from the ``magnitudes`` beyond it."""
    return max(1e-3, float((magnitudes.double() / start).log().mean()))
