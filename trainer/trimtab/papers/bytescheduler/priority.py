"""Priority: the bucket that the next forward pass needs first is sent first (ByteScheduler, SOSP 2019; P3, MLSys 2019).

Buffers are cut into parts, so that one that is not urgent delays an urgent one for no longer than a part takes. The
order is found by running ahead one step's exchanges, and is the same on every rank. Whenever a link is free, that
complete bucket goes next which the forward pass needs first. Buckets that have not begun to cross when backward ends
arrive in the next forward pass.

ByteScheduler's credit is how much may be handed to the network at the same time: with more than one part, the others
fill with bytes what one waits for latency, and what is more urgent waits longer for its turn. Each part of the credit
crosses a link of its own, over the same interface. The order by urgency is the same under any credit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

from trimtab.plan.profile import Profile
from trimtab.plan.schedules.base import PlannedSchedule, StepFacts, split
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.plan.timetable import Iteration, Send, Timetable

Choose = Callable[[Sequence[int], Sequence[int]], int]
"""From the buckets sent so far and those that are complete to the one that goes next."""

#: Parts of a buffer are tried from whole ones to so many in all of the gradient, each time twice as many.
MOST_PARTS = 32
#: Credits that are tried: parts that cross at the same time. More leave a step of eight parts nothing to put first.
CREDITS = (1, 2, 4)
#: A larger credit must shorten steps by so much: further links are further threads and connections.
_LEAST_GAIN = 0.05


def plan_priority(
    profile: Profile, cuts: tuple[int, ...], facts: StepFacts, *, partition: int, credit: int
) -> PlannedSchedule:
    """Plan the order by urgency, with the partition and credit that make steps shortest.

    If ranks have no further links over their first interface, or a second interface, the credit is 1.

    Args:
        profile: Measured times of a step.
        cuts: First elements of the buffers.
        facts: Tensor sizes and costs.
        partition: Most elements of a bucket; 0 tries several.
        credit: Parts that may cross at the same time; 0 tries `CREDITS`.
    """
    parts = [split(cuts, sum(facts.tensor_sizes), partition, 2 * MOST_PARTS)] if partition else partitions(cuts, facts)
    credits_tried = (credit,) if credit else CREDITS if facts.may_cut else (1,)
    if not facts.shares_interface or len(facts.link_slowness) > 1:
        credits_tried = (1,)

    all_times = [facts.times(profile, cut) for cut in parts]
    shortest, best = float("inf"), PlannedSchedule(cuts, None)
    for each in credits_tried:
        made = [timetable(times, num_links=each) for times in all_times]
        seconds = [times.step_seconds(order) for times, order in zip(all_times, made, strict=True)]
        first = seconds.index(min(seconds))
        if seconds[first] < (1 - _LEAST_GAIN) * shortest:
            shortest, best = seconds[first], PlannedSchedule(parts[first], made[first])
    return best


def partitions(cuts: tuple[int, ...], facts: StepFacts) -> list[tuple[int, ...]]:
    """Return the cuts that are tried, coarsest first."""
    num_elements = sum(facts.tensor_sizes)
    tried, most = [cuts], 1
    while facts.may_cut and (most := 2 * most) <= MOST_PARTS:
        finer = split(cuts, num_elements, -(-num_elements // most))
        if len(finer) <= 2 * MOST_PARTS and finer != tried[-1]:
            tried.append(finer)
    return tried


def timetable(times: StepTimes, choose: Choose = lambda sent, complete: max(complete), num_links: int = 1) -> Timetable:
    """Run one iteration's exchanges ahead, and return their order as a timetable of one iteration.

    Args:
        times: Times of each bucket.
        choose: Chooses the next bucket; by default the most urgent one.
        num_links: Links that share one interface; a bucket takes the one that is free first. Of the links of two
        interfaces, it takes the one over which a bucket of mean size would arrive first.
    """
    complete_at, num_buckets, slowness = list(accumulate(times.backward)), len(times.wire), times.link_slowness
    if num_links > 1:
        slowness = (1.0,) * num_links
    end, middling = complete_at[-1], sum(times.crossing) / num_buckets
    now, sent, consensus_send_index, interface = 0.0, list[int](), None, 0.0
    links, free = list[int](), [0.0] * len(slowness)
    waiting = list(range(num_buckets))
    while waiting:
        now = max(now, complete_at[waiting[0]])
        link = min(range(len(free)), key=lambda each: max(now, free[each]) + middling * slowness[each])
        now = max(now, free[link])
        complete = [bucket for bucket in waiting if complete_at[bucket] <= now]
        # The bucket that backward fills last may be complete before backward has ended, by the clock alone.
        if consensus_send_index is None and (now >= end or complete[-1] == num_buckets - 1):
            consensus_send_index = len(sent)
        bucket = choose(sent, complete) if consensus_send_index is None else max(complete)
        waiting.remove(bucket)
        sent.append(bucket)
        links.append(link)
        crossed = now + slowness[link] * times.crossing[bucket]
        if num_links > 1:  # bytes wait for those of the other links
            interface = crossed = max(crossed, interface + times.crossing[bucket] - (times.startup or 0.0))
        free[link] = crossed
    assert consensus_send_index is not None, "the last bucket is complete when backward ends"
    sends = []
    for index, (bucket, link) in enumerate(zip(sent, links, strict=True)):
        after: Literal["gradient", "backward"] = "backward" if index == consensus_send_index else "gradient"
        sends.append(Send(bucket, 0, after, link, "update" if index <= consensus_send_index else "forward"))
    return Timetable((), (Iteration(tuple(sends), update=0),))
