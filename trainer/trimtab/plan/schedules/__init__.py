"""When are buckets sent? One file per schedule; pure, without torch."""

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
    """Every schedule's name; the default first."""
    return schedules.names()


def create(spec: str, num_buckets: int, timetable: Timetable | None = None) -> Schedule:
    """The schedule that ``spec`` names, for a fusion plan of so many buckets.

    ``timetable`` is what its planner has made of it, where it has one; until then it is as wait-free. Raises
    `UserError` where it names none that is known, or an option that it does not have.
    """
    if schedules[spec].is_planned:
        schedules.options(spec)
        return WaitFree(num_buckets) if timetable is None else Timetabled(num_buckets, timetable)
    made: Schedule = schedules.create(spec, num_buckets)
    return made


def planned(spec: str, cuts: tuple[int, ...], *, profile: Profile | None, facts: StepFacts) -> PlannedSchedule:
    """The timetable that the schedule ``spec`` has for buffers that begin at ``cuts``, and where they begin then.

    None of it before steps were profiled, and where the schedule needs no plan.
    """
    if profile is None or not schedules[spec].is_planned:
        return PlannedSchedule(cuts, None)
    made: PlannedSchedule = schedules.create(spec, profile, cuts, facts)
    return made
