"""The interface of every schedule: which buckets are sent in an iteration, in what order, and what the optimizer gets.

A schedule is pure. It numbers iterations from 0, where it was adopted, and answers for each of them alike on every
rank. The gradients of an iteration are its *generation*; those that are not sent wait in their bucket, where later ones
are added to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Send:
    """One bucket's exchange."""

    bucket: int
    generation: int
    """What is sent: the sum of all that waits in the bucket, up to the gradients of this iteration.

    An earlier iteration's is sent when the forward pass begins, or once the sends before it in the order are under way.
    """
    after: Literal["gradient", "backward"] = "gradient"
    """When the gradients of the present iteration are sent: as soon as the bucket has them all, or after backward."""
    link: int = 0
    """Which of the session's links it crosses."""
    arrives: Literal["update", "forward"] = "update"
    """By when it must have arrived: before the optimizer steps, or before the next forward pass needs the bucket.

    Then the optimizer steps its parameters alone, just before the module that owns them runs (ByteScheduler, section 3;
    P3). The iteration has to update what is sent so.
    """


@dataclass(frozen=True)
class Iteration:
    """What one iteration does."""

    sends: tuple[Send, ...]
    """In the order in which they cross; at most one a bucket.

    The last that must have arrived before the update carries the ranks' vote, the first where none must; it is sent
    once backward has ended where others follow it.

    Without any there is no vote: no step is dropped, and plan changes and trials wait for the next one.
    """
    update: int | None
    """The optimizer steps, with all that has arrived of generations up to this one. None: it does not step.

    Parameters of which nothing has arrived are left alone.
    """
    joins: bool = True
    """Whether gradients that wait after this iteration are added to those that waited before it, or kept apart."""


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
