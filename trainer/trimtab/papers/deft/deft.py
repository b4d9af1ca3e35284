"""DeFT: updates are delayed and merged so that all exchanges hide behind computation (DeFT, sections III and IV)."""

from __future__ import annotations

from dataclasses import replace

from trimtab.papers.deft import queues
from trimtab.papers.deft.preserver import is_too_early, loss_model, preserved
from trimtab.papers.us_byte.us_byte import plan_us_byte
from trimtab.plan.profile import Profile
from trimtab.plan.schedules.base import PlannedSchedule, StepFacts, split
from trimtab.plan.timetable import Timetable

#: Buckets after which no longer one is cut: each is a message or several.
_MOST_BUCKETS = 30
#: A half that takes more than this share of the whole's time is not worth a cut: it is latency that takes long.
_HARDLY_SHORTER = 0.9


def plan_deft(
    profile: Profile, cuts: tuple[int, ...], facts: StepFacts, *, partition: int, preserver: str, merged: str
) -> PlannedSchedule:
    """Plan the queues' timetable, if the Preserver accepts it; else US-Byte's, which delays nothing.

    Args:
        profile: Measured times of a step, and the loss.
        cuts: First elements of the buffers.
        facts: Tensor sizes and costs.
        partition: Most elements of a bucket.
        preserver: ``off`` takes the first timetable, whatever it costs. ``on`` also accepts none while the loss falls
            short
        of what its gradients promise, or if it rose when updates came late: the paper's model sees neither.
        merged: An update takes the ``mean`` of the iterations that it merges, or their ``sum``. ``auto`` takes the sum,
            and
        delays nothing before training is a hundred steps old and the loss was seen to fall as promised. Without the
        Preserver nothing is seen, so ``auto`` takes the mean, as published.
    """
    num_elements = sum(facts.tensor_sizes)
    parts = _within_knapsack(profile, split(cuts, num_elements, partition), facts)
    times = facts.times(profile, parts)

    def solve(scale: float) -> Timetable:
        return replace(queues.timetable(times, scale), averages=not sums)

    sums = merged == "sum" or (merged == "auto" and preserver == "on")
    if preserver == "off":
        return PlannedSchedule(parts, solve(1.0))
    model = loss_model(profile, is_sgd=facts.is_sgd, sums=sums)
    waits = merged == "auto" and model is not None and is_too_early(profile)
    bears_it = profile.tolerates_staleness(is_sgd=facts.is_sgd) and not waits
    timetable = preserved(solve, queues.merged, model) if bears_it else None
    return plan_us_byte(profile, cuts, facts, partition=0) if timetable is None else PlannedSchedule(parts, timetable)


def _within_knapsack(profile: Profile, cuts: tuple[int, ...], facts: StepFacts) -> tuple[int, ...]:
    """Cut until each bucket crosses within the forward pass, the smallest knapsack (section III.D)."""
    num_elements = sum(facts.tensor_sizes)
    while len(cuts) < _MOST_BUCKETS:
        times = facts.times(profile, cuts)
        longest = max(range(len(cuts)), key=lambda bucket: times.crossing[bucket])
        start, end = cuts[longest], (*cuts[1:], num_elements)[longest]
        if times.crossing[longest] < sum(times.forward) or end - start < 2:
            return cuts
        middle = (start + end) // 2
        if facts.exchange(end - middle) > _HARDLY_SHORTER * facts.exchange(end - start):
            return cuts
        cuts = (*cuts[: longest + 1], middle, *cuts[longest + 1 :])
    return cuts
