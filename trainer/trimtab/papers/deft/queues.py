"""DeFT's two queues of buckets (section III.B), run ahead of training until they repeat themselves.

The *current* queue holds what is left to send of gradients of past iterations; the *future* queue adds up the gradients
that come meanwhile, of every bucket. Once the current queue can be emptied in an iteration, what still fits of the
future queue is sent as well, the rest becomes the current queue, and the optimizer takes the set that has been
completed.

Two corrections of Algorithm 2, by the paper's Fig. 4: the first iteration completes no older set, so it updates
nothing; and the future queue holds the present iteration's gradients when it is chosen from. Two departures from it:
exchanges of old gradients run on where the forward pass ends, so that both passes are one knapsack for them, which
wastes less; and a bucket is sent at most once in an iteration, so one that was just sent of the current queue waits in
the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from trimtab.papers.deft.knapsack import Fill, Orders, knapsack, recursive_knapsack, two_knapsacks
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.plan.timetable import Iteration, Send, Timetable

#: Iterations after which queues that have not repeated themselves are emptied, so that they do.
_MOST_ITERATIONS = 24


@dataclass(frozen=True)
class Queues:
    """State of both queues before an iteration."""

    current: tuple[int, ...] = ()
    """Buckets that are left to send of the generation that was closed last, in backward order."""
    age: int = 1
    """Iterations since it was closed; if more than 1, the future queue holds the gradients of those since."""


def timetable(times: StepTimes, scale: float = 1.0) -> Timetable:
    """Run the queues ahead until they repeat themselves, and return the iterations.

    At least one bucket of a current queue is sent in each iteration, however long it takes. So each queue is empty
    after as many iterations as there are buckets, and no gradient waits for twice as many.

    Args:
        times: Times of each bucket.
        scale: Size of the knapsacks, over the computing time.
    """
    queues, seen = Queues(), dict[Queues, int]()
    everything = Queues(tuple(range(len(times.wire))))
    iterations: list[Iteration] = []
    emptied_at = 0
    while queues not in seen:
        seen[queues] = len(iterations)
        if len(iterations) - emptied_at < _MOST_ITERATIONS or queues == everything:
            iteration, queues = _next(queues, times, scale)
        else:
            iteration, queues, emptied_at = _emptied(queues), everything, len(iterations)
        iterations.append(iteration)
    begin = seen[queues]
    return Timetable(tuple(iterations[:begin]), tuple(iterations[begin:]), averages=True)


def merged(made: Timetable) -> tuple[int, ...]:
    """Return how many iterations' gradients each update of the cycle takes (the paper's k, section IV.C)."""
    newest = [t + i.update for t, i in enumerate((*made.first, *made.cycle, *made.cycle)) if i.update is not None]
    in_cycle = sum(iteration.update is not None for iteration in made.cycle)
    counts = [later - earlier for earlier, later in zip([-1, *newest], newest, strict=False)]
    return tuple(counts[len(counts) - in_cycle :])


def _next(queues: Queues, times: StepTimes, scale: float) -> tuple[Iteration, Queues]:
    """Return one iteration, and the queues after it."""
    fill = _filler(times.link_slowness)
    seconds = [scale * (sum(times.forward) + sum(times.backward))] * len(times.link_slowness)
    old = _take(fill, queues.current, times, seconds)
    left = _without(queues.current, old)
    if left and not any(old):
        old = ((min(left, key=lambda bucket: times.crossing[bucket]),),)
        left = _without(left, old)
    joins, sends = queues.age > 1, _sends(old, -queues.age)
    if left:  # case 2
        return Iteration(sends, None, joins), Queues(left, queues.age + 1)
    unused = [available - taken for available, taken in zip_longest(seconds, _seconds(old, times), fillvalue=0.0)]
    fresh = _fresh(fill, sends, times, unused, scale)  # cases 3 and 4
    everything = tuple(range(len(times.wire)))
    update = -queues.age if queues.current else None
    return Iteration((*sends, *_sends(fresh, 0)), update, joins), Queues(_without(everything, fresh))


def _emptied(queues: Queues) -> Iteration:
    """Return an iteration that sends the rest of the current queue, however long it takes, and nothing else."""
    sends = tuple(Send(bucket, -queues.age) for bucket in queues.current)
    return Iteration(sends, -queues.age, joins=queues.age > 1)


def _fresh(fill: Fill, sends: Sequence[Send], times: StepTimes, unused: Sequence[float], scale: float) -> Orders:
    """Choose from the present iteration's gradients; never the bucket that backward fills last."""
    sent = {send.bucket for send in sends}
    free = [bucket for bucket in range(len(times.wire) - 1) if bucket not in sent]
    ready = [sum(times.backward[: bucket + 1]) for bucket in free]
    if not free:
        return ()
    steps = [scale * (later - earlier) for earlier, later in zip(ready, [*ready[1:], ready[-1]], strict=True)]
    seconds = [min(left, scale * (sum(times.backward) - ready[0])) for left in unused]
    orders = recursive_knapsack([times.crossing[bucket] for bucket in free], steps, seconds, fill)
    return tuple(tuple(free[item] for item in order) for order in orders)


def _take(fill: Fill, buckets: Sequence[int], times: StepTimes, seconds: Sequence[float]) -> Orders:
    orders = fill([times.crossing[bucket] for bucket in buckets], seconds)
    return tuple(tuple(buckets[item] for item in order) for order in orders)


def _filler(link_slowness: Sequence[float]) -> Fill:
    if len(link_slowness) == 1:
        return lambda weights, seconds: (knapsack(weights, seconds[0]),)
    return partial(two_knapsacks, speed_ratio=link_slowness[1])


def _seconds(orders: Orders, times: StepTimes) -> list[float]:
    """Return how long these orders take on each link."""
    taken = (sum(times.crossing[bucket] for bucket in order) for order in orders)
    return [slowness * seconds for slowness, seconds in zip(times.link_slowness, taken, strict=False)]


def _sends(orders: Orders, iteration: int) -> tuple[Send, ...]:
    pairs = sorted((bucket, link) for link, order in enumerate(orders) for bucket in order)
    return tuple(Send(bucket, iteration, link=link) for bucket, link in pairs)


def _without(buckets: Sequence[int], orders: Orders) -> tuple[int, ...]:
    taken = {bucket for order in orders for bucket in order}
    return tuple(bucket for bucket in buckets if bucket not in taken)
