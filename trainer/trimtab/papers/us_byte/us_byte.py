"""US-Byte: buckets of unequal size, in an order that is not the forward pass's (TPDS 2024).

It treats a step in two phases. While the forward pass runs, the rest crosses in the order in which it is needed, which
is the best order there. While backward runs, another bucket than the most urgent may go next: one that leaves the wire
free when a more urgent one is complete. Its paper solves that phase by a greedy algorithm of low complexity. The rule
here is our own: the bucket goes next with which the step is the shortest if all after it go by urgency.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.papers.bytescheduler import priority
from trimtab.plan.profile import Profile
from trimtab.plan.schedules.base import PlannedSchedule, StepFacts, split
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.plan.timetable import Timetable


def plan_us_byte(profile: Profile, cuts: tuple[int, ...], facts: StepFacts, *, partition: int) -> PlannedSchedule:
    """Plan buckets of unequal size and their order.

    Neighbours are joined while that shortens the step; no bucket reaches over one of ``cuts``.

    Args:
        profile: Measured times of a step.
        cuts: First elements of the buffers.
        facts: Tensor sizes and costs.
        partition: Elements of the buckets to begin with; 0 takes the partition that makes steps shortest.
    """

    def seconds(parts: tuple[int, ...]) -> float:
        times = facts.times(profile, parts)
        return times.step_seconds(priority.timetable(times))

    by_hand = split(cuts, sum(facts.tensor_sizes), partition, 2 * priority.MOST_PARTS) if partition else None
    tried = priority.partitions(cuts, facts) if by_hand is None else [by_hand]
    parts = min(tried, key=seconds)
    shortest = seconds(parts)
    while joined := [tuple(cut for cut in parts if cut != gone) for gone in parts if gone not in cuts]:
        best = min(joined, key=seconds)
        if seconds(best) >= shortest:
            break
        parts, shortest = best, seconds(best)
    return PlannedSchedule(parts, timetable(facts.times(profile, parts)))


def timetable(times: StepTimes) -> Timetable:
    """Return the order that the greedy rule makes."""

    def after(begun: Sequence[int]) -> float:
        """Return the step's seconds if the buckets of ``begun`` go first and the others by urgency."""
        return times.step_seconds(priority.timetable(times, _following(begun)))

    def shortest(sent: Sequence[int], complete: Sequence[int]) -> int:
        return min(reversed(complete), key=lambda bucket: after([*sent, bucket]))

    return priority.timetable(times, shortest)


def _following(begun: Sequence[int]) -> priority.Choose:
    def choose(sent: Sequence[int], complete: Sequence[int]) -> int:
        return begun[len(sent)] if len(sent) < len(begun) else max(complete)

    return choose
