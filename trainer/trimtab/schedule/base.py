"""The interface of every schedule: which buckets are sent in an iteration, in what order, and what the optimizer gets.

A schedule is pure. It numbers iterations from 0, where it was adopted, and answers for each of them alike on every
rank. The gradients of an iteration are its *generation*; those that are not sent wait in their bucket, where later ones
are added to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from trimtab.plan.timetable import Iteration


class Schedule(ABC):
    """When buckets are sent."""

    name: str
    averages: bool = False
    """Whether an update is divided by the number of iterations whose gradients were added up for it."""

    def __init__(self, num_buckets: int) -> None:
        self.num_buckets = num_buckets

    @abstractmethod
    def iteration(self, t: int) -> Iteration:
        """What iteration ``t`` does, counted from 0 where the schedule was adopted."""
