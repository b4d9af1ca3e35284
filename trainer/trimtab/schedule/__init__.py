"""When are buckets sent? One file per schedule; pure, without torch."""

from __future__ import annotations

from trimtab_api.catalogue import schedules

from trimtab.schedule.base import Iteration, Schedule, Send

__all__ = ["Iteration", "Schedule", "Send", "create", "names"]


def names() -> tuple[str, ...]:
    """Every schedule's name; the default first."""
    return schedules.names()


def create(spec: str, num_buckets: int) -> Schedule:
    """The schedule that ``spec`` names, for a fusion plan of so many buckets.

    Raises `UserError` where it names none that is known, or an option that it does not have.
    """
    made: Schedule = schedules.make(spec, num_buckets)
    return made
