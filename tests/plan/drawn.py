"""Times of steps as hypothesis draws them, and as tests write them down."""

from __future__ import annotations

from hypothesis import strategies as st
from trimtab.plan.schedules.step_times import StepTimes

_SECONDS = st.floats(0.001, 1.0)


@st.composite
def step_times(draw, most_buckets=10):
    """Of up to so many buckets, with exchanges from a tenth of the computation to five times as much."""
    n = draw(st.integers(1, most_buckets))
    forward, backward, wire, compress = (
        [draw(_SECONDS) for _ in range(n)] for _ in ("forward", "backward", "wire", "compress")
    )
    rate = draw(st.floats(0.1, 5.0)) * (sum(forward) + sum(backward)) / sum(wire)
    return StepTimes(tuple(forward), tuple(backward), tuple(0.1 * c for c in compress), tuple(rate * w for w in wire))


def even(num_buckets: int, coverage_rate: float) -> StepTimes:
    """Equal buckets, a second of computation, of which a third is the forward pass."""
    each = 1 / num_buckets
    return StepTimes(
        (each / 3,) * num_buckets,
        (2 * each / 3,) * num_buckets,
        (0.0,) * num_buckets,
        (coverage_rate * each,) * num_buckets,
    )
