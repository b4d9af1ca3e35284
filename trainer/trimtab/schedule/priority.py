"""What the next forward pass needs first is sent first (ByteScheduler, SOSP 2019; P3, MLSys 2019).

Buffers are cut into parts, so that one that is not urgent delays those that are for no longer than a part takes. The
order is found by running ahead one step's exchanges, and is the same on every rank: whenever a link is free, that
bucket of those which are complete goes next which the forward pass needs first. What has not begun to cross when
backward ends arrives in the next forward pass.

ByteScheduler also has a credit, the bytes that may be handed to the network ahead of their turn, so that it never
stands idle. Nothing is handed over ahead of its turn here: the order is known, so buckets are compressed ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

from trimtab.profile import Profile
from trimtab.schedule.planner import PlannedSchedule, StepFacts, split
from trimtab.schedule.step_times import StepTimes
from trimtab.timetable import Iteration, Send, Timetable

Choose = Callable[[Sequence[int], Sequence[int]], int]
"""From the buckets sent so far and those that are complete to the one that goes next."""

#: Parts of a buffer are tried from whole ones to so many in all of the gradient, each time twice as many.
MOST_PARTS = 32


def plan_priority(profile: Profile, cuts: tuple[int, ...], facts: StepFacts, *, partition: int) -> PlannedSchedule:
    """``partition``: most elements of a bucket; 0: whatever makes steps the shortest."""
    parts = [split(cuts, sum(facts.tensor_sizes), partition, 2 * MOST_PARTS)] if partition else partitions(cuts, facts)

    def seconds(cut: tuple[int, ...]) -> float:
        times = facts.times(profile, cut)
        return times.step_seconds(timetable(times))

    best = min(parts, key=seconds)
    return PlannedSchedule(best, timetable(facts.times(profile, best)))


def partitions(cuts: tuple[int, ...], facts: StepFacts) -> list[tuple[int, ...]]:
    """The cuts that are tried, coarsest first."""
    num_elements = sum(facts.tensor_sizes)
    tried, most = [cuts], 1
    while (most := 2 * most) <= MOST_PARTS:
        finer = split(cuts, num_elements, -(-num_elements // most))
        if len(finer) <= 2 * MOST_PARTS and finer != tried[-1]:
            tried.append(finer)
    return tried


def timetable(times: StepTimes, choose: Choose = lambda sent, complete: max(complete)) -> Timetable:
    """One iteration, again and again: the order that ``choose`` makes, by default the most urgent bucket first.

    Of two links a bucket takes the one over which one of middling size would arrive first.
    """
    complete_at, num_buckets, slowness = list(accumulate(times.backward)), len(times.wire), times.link_slowness
    end, middling = complete_at[-1], sum(times.crossing) / num_buckets
    now, sent, carrier = 0.0, list[int](), None
    links, free = list[int](), [0.0] * len(slowness)
    waiting = list(range(num_buckets))
    while waiting:
        now = max(now, complete_at[waiting[0]])
        link = min(range(len(free)), key=lambda each: max(now, free[each]) + middling * slowness[each])
        now = max(now, free[link])
        complete = [bucket for bucket in waiting if complete_at[bucket] <= now]
        # The bucket that backward fills last may be complete before backward has ended, by the clock alone.
        if carrier is None and (now >= end or complete[-1] == num_buckets - 1):
            carrier = len(sent)
        bucket = choose(sent, complete) if carrier is None else max(complete)
        waiting.remove(bucket)
        sent.append(bucket)
        links.append(link)
        free[link] = now + slowness[link] * times.crossing[bucket]
    assert carrier is not None, "the last bucket is complete when backward ends"
    sends = []
    for index, (bucket, link) in enumerate(zip(sent, links, strict=True)):
        after: Literal["gradient", "backward"] = "backward" if index == carrier else "gradient"
        sends.append(Send(bucket, 0, after, link, "update" if index <= carrier else "forward"))
    return Timetable((), (Iteration(tuple(sends), update=0),))
