"""The interfaces of schedules and of their planners: which buckets an iteration sends, in what order, and when.

A schedule is pure. It numbers iterations from 0, where it was adopted, and answers for each of them alike on every
rank. The gradients of an iteration are its *generation*; those that are not sent wait in their bucket, where later ones
are added to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any, Protocol

from trimtab_api.catalogue.fusion import MOST_BUFFERS

from trimtab.plan.profile import Profile
from trimtab.plan.schedules.step_times import StepTimes, step_times
from trimtab.plan.timeline import latent
from trimtab.plan.timetable import Iteration, Timetable


class Schedule(ABC):
    """Decides when buckets are sent."""

    name: str
    averages: bool = False
    """True if an update is divided by the number of iterations whose gradients were added up for it."""

    def __init__(self, num_buckets: int) -> None:
        self.num_buckets = num_buckets

    @abstractmethod
    def iteration(self, t: int) -> Iteration:
        """Return what iteration ``t`` does, counted from 0 at the schedule's adoption."""


BufferSeconds = Callable[[int], float]
"""Seconds of one buffer, by its number of elements."""


@dataclass(frozen=True)
class StepFacts:
    """Inputs of a schedule's planner beside the profile."""

    tensor_sizes: tuple[int, ...]
    """Elements of each tensor, in backward order."""
    compress: BufferSeconds
    exchange: BufferSeconds
    is_sgd: bool
    """True if the optimizer adds up its gradients, as SGD does."""
    link_slowness: tuple[float, ...] = (1.0,)
    """See `StepTimes`."""
    shares_interface: bool = False
    """True if ranks may connect by further links over their first interface."""
    may_cut: bool = True
    """True if buffers may be sent in parts, or several at once, unless the plan says in which and how many."""

    def times(self, profile: Profile, cuts: Sequence[int]) -> StepTimes:
        """Return the times of the buckets that begin at ``cuts``."""
        startup = latent(self.exchange(1)) if self.shares_interface else None
        return step_times(profile, self.tensor_sizes, cuts, self.compress, self.exchange, self.link_slowness, startup)


@dataclass(frozen=True)
class PlannedSchedule:
    """Result of a schedule's planner."""

    cuts: tuple[int, ...]
    """First element of each buffer."""
    timetable: Timetable | None
    """None: wait-free."""


class SchedulePlanner(Protocol):
    """A pure function that decides when buckets are sent, and cuts them into parts for it.

    Rank 0's controller calls it once steps were profiled. The result travels with the plan, so that all ranks follow
    the same timetable. It may cut buffers further, so that they can be sent in parts; it joins none.
    """

    def __call__(self, profile: Profile, cuts: tuple[int, ...], facts: StepFacts, **options: Any) -> PlannedSchedule:
        """Plan for buffers that begin at ``cuts``; ``options`` are all those of the schedule's row in the catalogue."""


def split(cuts: Sequence[int], num_elements: int, most: int, most_parts: int = MOST_BUFFERS) -> tuple[int, ...]:
    """Cut further, into equal parts, until no buffer holds more than ``most`` elements.

    ``most`` is raised if it would give more than about ``most_parts`` buffers.
    """
    most = max(most, ceil(num_elements / most_parts))
    parts: list[int] = []
    for start, end in pairwise((*cuts, num_elements)):
        num_parts = ceil((end - start) / most)
        parts += [start + (end - start) * part // num_parts for part in range(num_parts)]
    return tuple(parts)
