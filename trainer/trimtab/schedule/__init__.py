"""When are buckets sent? One file per schedule, by its name in `trimtab_api.catalogue.schedule`. Pure, no torch."""

from __future__ import annotations

from trimtab_api import catalogue

from trimtab.schedule.base import Iteration, Schedule, Send

__all__ = ["Iteration", "Schedule", "Send", "create"]


def create(name: str, num_buckets: int) -> Schedule:
    """The schedule ``name`` for a fusion plan of so many buckets.

    Raises `UserError` for a name that is not known.
    """
    made: Schedule = catalogue.schedules.factory(name)(num_buckets)
    return made
