"""What every planner of a schedule is: a pure function, which rank 0's controller asks once steps were profiled.

What it answers travels with the plan, so that all ranks follow the same timetable. It may cut buffers further, so that
they can be sent in parts; it joins none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any, Protocol

from trimtab_api.catalogue.fusion import MOST_BUFFERS

from trimtab.plan.profile import Profile
from trimtab.plan.timetable import Timetable
from trimtab.schedule.step_times import StepTimes, step_times
from trimtab.timeline import latent

BufferSeconds = Callable[[int], float]
"""Seconds that one buffer takes, by its number of elements."""


@dataclass(frozen=True)
class StepFacts:
    """What is known beside the profile."""

    tensor_sizes: tuple[int, ...]
    """Elements of each tensor, in backward order."""
    compress: BufferSeconds
    exchange: BufferSeconds
    is_sgd: bool
    """Whether the optimizer adds up what it is given, as SGD does."""
    link_slowness: tuple[float, ...] = (1.0,)
    """As `StepTimes` has it."""
    shares_interface: bool = False
    """Whether ranks may connect by further links over their first interface."""
    may_cut: bool = True
    """Whether buffers may be sent in parts, or several at the same time, where nobody says in which and how many."""

    def times(self, profile: Profile, cuts: Sequence[int]) -> StepTimes:
        """Of each of the buckets that begin at ``cuts``."""
        startup = latent(self.exchange(1)) if self.shares_interface else None
        return step_times(profile, self.tensor_sizes, cuts, self.compress, self.exchange, self.link_slowness, startup)


@dataclass(frozen=True)
class PlannedSchedule:
    """What a planner answers."""

    cuts: tuple[int, ...]
    """Where buffers begin."""
    timetable: Timetable | None
    """None: as wait-free."""


class SchedulePlanner(Protocol):
    """Says when buckets are sent, and into which parts they are cut for it."""

    def __call__(self, profile: Profile, cuts: tuple[int, ...], facts: StepFacts, **options: Any) -> PlannedSchedule:
        """For buffers that begin at ``cuts``. ``options`` are all those of the schedule's row in the catalogue."""


def split(cuts: Sequence[int], num_elements: int, most: int, most_parts: int = MOST_BUFFERS) -> tuple[int, ...]:
    """Cuts between which no buffer holds more than ``most`` elements: larger ones are cut into equal parts.

    ``most`` is raised where it would give more than about ``most_parts`` buffers.
    """
    most = max(most, ceil(num_elements / most_parts))
    parts: list[int] = []
    for start, end in pairwise((*cuts, num_elements)):
        num_parts = ceil((end - start) / most)
        parts += [start + (end - start) * part // num_parts for part in range(num_parts)]
    return tuple(parts)
