"""The choice among plans none of which beats another in everything: the one that reaches the target first.

Error feedback delays gradients; it does not lose them. With gain g, the residual's norm is ``sqrt(1/g - 1)`` times that
of what was sent, and the delay goes with it: a run needs about ``1 + D sqrt(1/g - 1)`` times the steps of a dense one.
D is larger where all ranks send what one of them selected: what that one passes over is held back everywhere.
The time to a target then goes with the product of step time and number of steps.

In the logarithms of step time over dense's step time and of relative number of steps, products are sums, dense is the
origin, and plans of equal time to target lie on planes with normal (w, 1 - w), w the speed weight. The knee is the
point farthest below the plane through dense. (Not below the plane through the front's own extremes: which point is
farthest from that one does not depend on how the axes are scaled, so that a sync time of a thousandth of the step
would weigh as much as one of ten steps.)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt

from trimtab.control.decision import Point

#: D: what it costs in steps that the residual is as large as what was sent, as measured on real runs
#: (docs/decisions/time-to-target.md). Short runs pay more, long ones less.
DELAY, DELAY_OF_SHARED_INDICES = 0.08, 0.12


def relative_steps(point: Point) -> float:
    """Steps to the target over dense's, under this plan and its gain."""
    delay = DELAY_OF_SHARED_INDICES if point.plan.shares_indices else DELAY
    return 1 + delay * sqrt(1 / point.gain - 1)


def depth(point: Point, dense: Point, speed_weight: float) -> float:
    """How far a plan lies below the plane through dense: 0 for dense itself, positive for what is sooner at the target.

    ``speed_weight`` 0.5 weighs both alike (the depth is then the logarithm of the speed-up of time to target), 1 looks
    at the step time alone and 0 at the gain alone.
    """
    speed_up = log(dense.step_seconds / point.step_seconds)
    return 2 * (speed_weight * speed_up - (1 - speed_weight) * log(relative_steps(point)))


def speed_up(depth_over: float) -> float:
    """A difference of depths as a factor on the time to target."""
    return exp(depth_over)


def knee(points: Sequence[Point], dense: Point, speed_weight: float) -> Point:
    """The deepest of the points, or dense where none is predicted both faster than dense's step and deeper."""
    faster = [point for point in points if point.step_seconds < dense.step_seconds]
    return max([*faster, dense], key=lambda point: depth(point, dense, speed_weight))
