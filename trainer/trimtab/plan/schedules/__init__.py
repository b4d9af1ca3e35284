"""Schedules: when buckets are sent. Pure, without torch."""

from __future__ import annotations

from trimtab_api.catalogue import schedules

from trimtab.plan.profile import Profile
from trimtab.plan.schedules.base import BufferSeconds, PlannedSchedule, Schedule, StepFacts
from trimtab.plan.schedules.simple import Timetabled, WaitFree
from trimtab.plan.timetable import Iteration, Send, Timetable

__all__ = [
    "BufferSeconds",
    "Iteration",
    "PlannedSchedule",
    "Schedule",
    "Send",
    "StepFacts",
    "Timetable",
    "create",
    "names",
    "planned",
]


def names() -> tuple[str, ...]:
    """Return the names of all schedules; the default is first."""
    return schedules.names()


def create(spec: str, num_buckets: int, timetable: Timetable | None = None) -> Schedule:
    """Create the schedule that ``spec`` names.

    Args:
        spec: Name and options.
        num_buckets: Buckets of the fusion plan.
        timetable: Made by the schedule's planner, if it has one; without it the schedule is wait-free.

    Raises:
        UserError: The schedule or an option is unknown.
    """
    if schedules[spec].is_planned:
        schedules.options(spec)
        return WaitFree(num_buckets) if timetable is None else Timetabled(num_buckets, timetable)
    made: Schedule = schedules.create(spec, num_buckets)
    return made


def planned(spec: str, cuts: tuple[int, ...], *, profile: Profile | None, facts: StepFacts) -> PlannedSchedule:
    """Return the timetable of the schedule ``spec`` for buffers that begin at ``cuts``, and its own cuts.

    There is no timetable before steps were profiled, nor if the schedule needs none.
    """
    if profile is None or not schedules[spec].is_planned:
        return PlannedSchedule(cuts, None)
    made: PlannedSchedule = schedules.create(spec, profile, cuts, facts)
    return made
