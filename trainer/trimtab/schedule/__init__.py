"""When are buckets sent? One file per schedule; pure, without torch."""

from __future__ import annotations

from trimtab_api.errors import UserError

from trimtab.schedule.after_backward import AfterBackward
from trimtab.schedule.base import Iteration, Schedule, Send
from trimtab.schedule.wait_free import WaitFree

__all__ = ["Iteration", "Schedule", "Send", "create", "names"]

_SCHEDULES: dict[str, type[Schedule]] = {schedule.name: schedule for schedule in (WaitFree, AfterBackward)}


def names() -> tuple[str, ...]:
    """The names that `create` knows; the default first."""
    return tuple(_SCHEDULES)


def create(name: str, num_buckets: int) -> Schedule:
    """The schedule ``name`` for a fusion plan of so many buckets.

    Raises `UserError` for a name that is not known.
    """
    try:
        schedule = _SCHEDULES[name]
    except KeyError:
        raise UserError(f"not known; choose from {', '.join(names())}", field="schedule", value=name) from None
    return schedule(num_buckets)
