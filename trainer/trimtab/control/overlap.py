"""How long a step takes when buffers are compressed and cross the network while backward still runs.

Three things go on beside each other, each of them in one order: computing; compressing, one buffer after another; and
the wire, one exchange after another. A buffer is compressed once backward has filled it, and sent once that is done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Literal

from trimtab import schedule
from trimtab.profile import Profile

#: Share of the computation that has passed when backward begins: a forward costs half a backward.
_FORWARD_SHARE = 1 / 3
#: Iterations of a schedule that its average is taken over, after so many in which a delay builds up.
_SETTLING, _ITERATIONS = 12, 12


@dataclass(frozen=True)
class Readiness:
    """When gradients are complete, as shares of a step's computation, which ends with the last of them."""

    tensor_stops: tuple[int, ...]
    """The element after each tensor, in backward order."""
    shares: tuple[float, ...]
    """The share that has passed when its gradient is complete."""

    @classmethod
    def by_size(cls, tensor_sizes: Sequence[int]) -> Readiness:
        """As if each tensor's backward took in proportion to its elements."""
        stops = tuple(accumulate(tensor_sizes))
        return cls(stops, tuple(_FORWARD_SHARE + (1 - _FORWARD_SHARE) * stop / stops[-1] for stop in stops))

    @classmethod
    def measured(cls, profile: Profile, tensor_sizes: Sequence[int]) -> Readiness:
        """As a profile has it."""
        lead, backward = profile.lead_seconds, profile.backward_seconds
        passed = accumulate(profile.tensor_backward_seconds)
        return cls(
            tuple(accumulate(tensor_sizes)),
            tuple((lead + min(seconds, backward)) / (lead + backward) for seconds in passed),
        )

    def of_buffer(self, stop: int) -> float:
        """The share that has passed when all elements before ``stop`` are complete: tensors come as a whole."""
        return self.shares[bisect_left(self.tensor_stops, stop)]


Start = Literal["at once", "gradient", "backward"]
"""When a buffer may be compressed: it waits from an earlier iteration; it is complete; backward has ended."""
Order = tuple[tuple[int, Start], ...]
"""What one iteration sends: buffers, in the order in which they cross."""


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
    buffers = tuple(zip(ready_shares, compress_seconds, wire_seconds, strict=True))
    if local_steps > 0:
        after_each_round: Order = tuple((number, "backward") for number in range(len(buffers)))
        return compute_seconds + _iteration_seconds(0.0, buffers, after_each_round) / local_steps
    return sum(
        share * _iteration_seconds(compute_seconds, buffers, order) for order, share in _orders(schedule, len(buffers))
    )


def _iteration_seconds(compute_seconds: float, buffers: Sequence[tuple[float, float, float]], order: Order) -> float:
    compressed = sent = 0.0
    for number, start in order:
        ready_share, compress, wire = buffers[number]
        if start != "at once":
            ready = compute_seconds if start == "backward" else compute_seconds * ready_share
            if ready > compressed:
                compressed = ready
        compressed += compress
        sent = (sent if sent > compressed else compressed) + wire
    return max(sent, compute_seconds)


@lru_cache(maxsize=1024)
def _orders(name: str, num_buffers: int) -> tuple[tuple[Order, float], ...]:
    """The different iterations of a schedule, and the share of all that are such."""
    made = schedule.create(name, num_buffers)
    counts: Counter[Order] = Counter()
    for t in range(_SETTLING, _SETTLING + _ITERATIONS):
        counts[tuple((s.bucket, "at once" if s.generation < t else s.after) for s in made.iteration(t).sends)] += 1
    return tuple((order, count / _ITERATIONS) for order, count in counts.items())
