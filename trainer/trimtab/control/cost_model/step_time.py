"""The time of a step under a schedule: its iterations in the timeline, and their mean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from trimtab_api.catalogue import schedules

from trimtab.plan import schedules as schedule
from trimtab.plan.timeline import BufferTimes, Transfer, iteration_seconds, mean_iteration_seconds, transfers_of
from trimtab.plan.timetable import Timetable

#: Iterations of a schedule that its average is taken over, after so many in which a delay builds up.
_SETTLING, _ITERATIONS = 12, 12

Cycle = Sequence[tuple[tuple[Transfer, ...], int]]
"""The transfers of recurring iterations, each in the order in which it crosses, with how often it comes."""


def step_seconds(
    compute_seconds: float,
    buffers: BufferTimes,
    schedule: str = schedules.default,
    timetable: Timetable | None = None,
    local_steps: int = 0,
) -> float:
    """Return the mean wall time of a step under a schedule, or under what its planner has made of it.

    Args:
        compute_seconds: Computation of a step.
        buffers: When each buffer is ready, and what its compression and exchange take.
        schedule: The schedule's name.
        timetable: What the schedule's planner has made; None if it has none.
        local_steps: H, if it is not 0: updates are exchanged, all of them after each H-th step, and under a schedule
            that overlaps rounds while the next H are computed.
    """
    if local_steps > 0:
        links = {} if timetable is None else {send.bucket: send.link for send in timetable.cycle[0].sends}
        after_each_round = tuple(
            Transfer(number, "backward", links.get(number, 0)) for number in range(len(buffers.ready))
        )
        exchange = iteration_seconds(0.0, buffers, after_each_round)
        if not schedules[schedule].overlaps_rounds:
            return compute_seconds + exchange / local_steps
        compress = sum(buffers.compress)  # as the round ends; then its updates cross under the next one
        return (compress + max(local_steps * compute_seconds, exchange - compress)) / local_steps
    return mean_iteration_seconds(compute_seconds, buffers, cycle_of(schedule, len(buffers.ready), timetable))


def exchanges_a_step(
    num_buffers: int, schedule: str = schedules.default, timetable: Timetable | None = None, local_steps: int = 0
) -> float:
    """Return how many exchanges of a buffer there are in a mean step, over the number of buffers.

    It is 1, but less if an exchange carries what several steps have brought: rounds of local steps, merged gradients.
    """
    if local_steps > 0:
        return 1 / local_steps
    cycle = cycle_of(schedule, num_buffers, timetable)
    num_exchanges = sum(count * len(transfers) for transfers, count in cycle)
    return num_exchanges / (num_buffers * sum(count for _, count in cycle))


def cycle_of(name: str, num_buffers: int, timetable: Timetable | None = None) -> Cycle:
    """Return the iterations of a schedule once it has settled; equal ones once, if none leaves anything to the next."""
    return _of_schedule(name, num_buffers) if timetable is None else _of_timetable(timetable)


@lru_cache(maxsize=1024)
def _of_schedule(name: str, num_buffers: int) -> Cycle:
    made = schedule.create(name, num_buffers)
    return _counted([transfers_of(made.iteration(t), t) for t in range(_SETTLING, _SETTLING + _ITERATIONS)])


@lru_cache(maxsize=1024)
def _of_timetable(timetable: Timetable) -> Cycle:
    return _counted([transfers_of(iteration) for iteration in timetable.cycle])


def _counted(iterations: Sequence[tuple[Transfer, ...]]) -> Cycle:
    if any(transfer.is_deferred for transfers in iterations for transfer in transfers):
        return [(transfers, 1) for transfers in iterations]
    return [(transfers, iterations.count(transfers)) for transfers in dict.fromkeys(iterations)]
