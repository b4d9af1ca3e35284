"""The choice among plans none of which beats another in everything: the one that reaches the target first.

The time to a target is the product of step time and number of steps, and the latter grows with the staleness
of error feedback (`trimtab.control.cost_model.convergence`).

In the logarithms of step time over dense's step time and of relative number of steps, products are sums, dense is the
origin, and plans of equal time to target lie on planes with normal (w, 1 - w), w the speed weight. The knee is the
point farthest below the plane through dense. (Not below the plane through the front's own extremes: which point is
farthest from that one does not depend on how the axes are scaled, so that a sync time of a thousandth of the step
would weigh as much as one of ten steps.)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from trimtab.control.decision import Prediction


def log_speedup(prediction: Prediction, dense: Prediction, speed_weight: float) -> float:
    """Return how far a plan lies below the plane through dense: 0 for dense, positive if it is sooner at the target.

    What is doubted of a plan's steps is taken off.

    Args:
        prediction: The plan.
        dense: Dense on the same network.
        speed_weight: 0.5 weighs both alike (the depth is then the logarithm of the speed-up of time to target), 1 looks
            at the step time alone and 0 at the gain alone.
    """
    speed_up = log(dense.step_seconds / prediction.step_seconds)
    slowdown = log(prediction.convergence_slowdown) + prediction.doubt
    return 2 * (speed_weight * speed_up - (1 - speed_weight) * slowdown)


def knee(predictions: Sequence[Prediction], dense: Prediction, speed_weight: float) -> Prediction:
    """Return the deepest of the points, or dense if none is predicted both faster than dense's step and deeper."""
    faster = [prediction for prediction in predictions if prediction.step_seconds < dense.step_seconds]
    return max([*faster, dense], key=lambda prediction: log_speedup(prediction, dense, speed_weight))
