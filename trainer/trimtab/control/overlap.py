"""What a schedule makes of a step's time: its iterations, each in the timeline, and their mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from trimtab import schedule
from trimtab.timeline import BufferTimes, Transfer, iteration_seconds

#: Iterations of a schedule that its average is taken over, after so many in which a delay builds up.
_SETTLING, _ITERATIONS = 12, 12

Order = tuple[Transfer, ...]
"""What one iteration sends, in the order in which it crosses."""


def step_seconds(
    compute_seconds: float,
    ready_shares: Sequence[float],
    compress_seconds: Sequence[float],
    wire_seconds: Sequence[float],
    schedule: str = "wait-free",
    local_steps: int = 0,
) -> float:
    """Mean wall time of a step under a schedule; every exchange of an iteration ends before the next begins.

    The sequences have an entry for each buffer: the share of the computation after which it is complete (`Readiness`),
    and what it takes on each thread. ``local_steps``, where it is not 0, is H: updates are exchanged, all of them after
    each H-th step.
    """
    buffers = BufferTimes([compute_seconds * share for share in ready_shares], compress_seconds, wire_seconds)
    num_buffers = len(ready_shares)
    if local_steps > 0:
        after_each_round = tuple(Transfer(number, "backward") for number in range(num_buffers))
        return compute_seconds + iteration_seconds(0.0, buffers, after_each_round) / local_steps
    return sum(
        share * iteration_seconds(compute_seconds, buffers, order, num_links)
        for order, share, num_links in _orders(schedule, num_buffers)
    )


@lru_cache(maxsize=1024)
def _orders(name: str, num_buffers: int) -> tuple[tuple[Order, float, int], ...]:
    """The different iterations of a schedule, the share of all that are such, and the links that each uses."""
    made = schedule.create(name, num_buffers)
    counts: Counter[Order] = Counter()
    for t in range(_SETTLING, _SETTLING + _ITERATIONS):
        sends = made.iteration(t).sends
        counts[tuple(Transfer(s.bucket, "at once" if s.generation < t else s.after, s.link) for s in sends)] += 1
    return tuple(
        (order, count / _ITERATIONS, 1 + max((transfer.link for transfer in order), default=0))
        for order, count in counts.items()
    )
