"""What profiled steps have measured, and what several of them tell together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from trimtab.engine.profiling.trace import Span
from trimtab.plan.profile import BucketTimes


@dataclass
class ProfiledStep:
    """One profiled step."""

    lead: float = 0.0
    left_out: float = 0.0
    """Seconds of the engine before the backward pass: waiting for late means, and stepping with them."""
    tensors: dict[int, float] = field(default_factory=dict)
    modules: dict[str, float] = field(default_factory=dict)
    buckets: dict[int, tuple[float, float]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    completed: dict[int, float] = field(default_factory=dict)
    """By tensor: when its gradient was complete."""
    loss: float | None = None
    squared_mean: float | None = None
    """Squared norm of the gradient's mean over ranks; None where that is not known, as under compression."""
    mean_squared: float | None = None
    """Mean over ranks of a gradient's squared norm, which the vote of the next step tells."""


def bucket_times(steps: Sequence[dict[int, tuple[float, float]]]) -> tuple[BucketTimes, ...]:
    """Return, of each bucket, the median of its compression, and the least of its exchange, which waited the least.

    None where not every bucket was exchanged.
    """
    numbers = {number for step in steps for number in step}
    times = [[step[number] for step in steps if number in step] for number in range(max(numbers, default=-1) + 1)]
    if not all(times):
        return ()
    return tuple(BucketTimes(median(each[0] for each in bucket), min(each[1] for each in bucket)) for bucket in times)


def gradient_variance(steps: Sequence[ProfiledStep], before: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the squared norm of the mean gradient and the variance over ranks, by the steps in which both are known.

    Where steps tell one of both, the other is as ``before``: the variance, or its share of a rank's squared norm.
    """
    both = [
        (s.squared_mean, s.mean_squared) for s in steps if s.squared_mean is not None and s.mean_squared is not None
    ]
    if not both and before is not None:
        means = [step.squared_mean for step in steps if step.squared_mean is not None]
        owns = [step.mean_squared for step in steps if step.mean_squared is not None]
        scale = fmean(owns) / (sum(before) or 1.0) if owns else 1.0
        return (fmean(means), before[1]) if means else (scale * before[0], scale * before[1])
    if not both:
        return None
    return fmean(mean for mean, _ in both), fmean(max(0.0, own - mean) for mean, own in both)
