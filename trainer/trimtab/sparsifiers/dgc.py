"""DGC: the threshold of a sample, lowered until enough elements reach it.

Lin et al., Deep Gradient Compression, ICLR 2018, section 5; the constants are those of its released code. Its momentum
correction, local gradient clipping and warm-up are options of the source `gradient`: they change what is compressed,
not which of it is sent (docs/adr/0015-momentum-correction.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from trimtab.kernels import FlatGrad
from trimtab.sparsifiers.base import Sent
from trimtab.sparsifiers.tail_estimate import sample_magnitudes
from trimtab.sparsifiers.threshold_selector import Key, ThresholdSelector
from trimtab.sparsifiers.topk import kth_largest

#: The share of the elements that is sampled, one out of each stride ...
SAMPLE_SHARE = 0.01
#: ... and the k largest that the sample holds at least.
MIN_TOP_SAMPLES = 2
#: Factor of the threshold if too few elements reach it.
LOWERED = 0.8


class DGC(ThresholdSelector):
    """Selects 0.8 k to 1.3 k elements of each segment; exactly the k largest if more reach the threshold.

    Each step draws anew where in its stride a sampled element lies.
    """

    name = "dgc"
    lower, upper = 0.8, 1.3
    looks_at_all = False
    max_corrections = 10

    def __init__(self) -> None:
        self._num_steps = 0

    def _threshold(self, grad: FlatGrad, residual: Tensor | None, k: int, key: Key) -> float:
        n = grad.numel()
        num_samples = min(n, max(math.ceil(SAMPLE_SHARE * n), math.ceil(MIN_TOP_SAMPLES * n / k)))
        magnitudes = sample_magnitudes(grad, residual, num_samples, self._num_steps)
        return kth_largest(magnitudes, math.ceil(num_samples * k / n))

    def _corrected(self, threshold: float, num_over: int, k: int) -> float:
        return LOWERED * threshold if num_over < self.lower * k else threshold

    def commit(self, sent: Sequence[Sent] = ()) -> None:
        """See `Selector.commit`."""
        self._num_steps += 1

    def state_dict(self) -> dict[str, Any]:
        """Return ``num_steps``, the committed steps, from which the sample is drawn."""
        return {"num_steps": self._num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Selector.load_state_dict`."""
        self._num_steps = int(state["num_steps"])
