"""Hard threshold: elements that reach a constant, which is chosen before training.

Sahu et al., Rethinking Gradient Sparsification as Total Error Minimization, NeurIPS 2021; compared with ExDyna in
ExDyna's section 5.
"""

from __future__ import annotations

from torch import Tensor

from trimtab.kernels import FlatGrad
from trimtab.sparsifiers.threshold_selector import Key, ThresholdSelector


class HardThreshold(ThresholdSelector):
    """Selects the elements that reach the constant, if these are k / 4 to 4 k of each segment.

    By design the count does not depend on k: gradients shrink while training, residuals grow, and the published scheme
    sends up to a hundred times what was meant (ExDyna, Fig. 6). Beyond the bounds the count is clamped as
    `ThresholdSelector` says, so that a plan's ratio still bounds its bytes.
    """

    name = "hard-threshold"
    lower, upper = 0.25, 4.0
    looks_at_all = False

    def __init__(self, *, threshold: float) -> None:
        """Set ``threshold``: lambda, the smallest magnitude that is sent."""
        self._constant = threshold

    def _threshold(self, grad: FlatGrad, residual: Tensor | None, k: int, key: Key) -> float:
        return self._constant
