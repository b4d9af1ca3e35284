"""Iterations of a schedule, as plain data that a plan carries and every rank follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from trimtab_api.renamed_arguments import renamed_fields


@dataclass(frozen=True)
class Send:
    """One bucket's exchange."""

    bucket: int
    iteration: int
    """The sum of all that waits in the bucket, up to the gradients of this iteration, is sent.

    An earlier iteration's is sent when the forward pass begins, or once the sends before it in the order are under way.
    """
    after: Literal["gradient", "backward"] = "gradient"
    """The present iteration's gradients are sent as soon as the bucket has them all, or after backward."""
    link: int = 0
    """Number of the session's link: one of each interface first, then further ones over the first interface."""
    arrives: Literal["update", "forward"] = "update"
    """Deadline of the arrival: before the optimizer steps, or before the next forward pass needs the bucket.

    In the latter case the optimizer steps the bucket's parameters alone, just before the module that owns them runs
    (ByteScheduler, section 3; P3). The iteration has to update what is sent so.
    """


renamed_fields(Send, {"generation": "iteration"})


@dataclass(frozen=True)
class Iteration:
    """One iteration of a schedule."""

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
    """True if gradients that wait after this iteration are added to those that waited before; else they are kept apart.
    """

    @property
    def consensus_send_index(self) -> int:
        """Index of the send that carries the vote."""
        due = [index for index, send in enumerate(self.sends) if send.arrives == "update"]
        return due[-1] if due else 0

    def since(self, t: int) -> Iteration:
        """Return the iteration with generations counted from iteration ``t`` on, not from 0."""
        sends = tuple(replace(send, iteration=send.iteration + t) for send in self.sends)
        return replace(self, sends=sends, update=None if self.update is None else self.update + t)

    def within(self, num_links: int) -> Iteration:
        """See `Timetable.within`."""
        return replace(self, sends=tuple(s if s.link < num_links else replace(s, link=0) for s in self.sends))


@dataclass(frozen=True)
class Timetable:
    """A planner's schedule: iterations to begin with, then others again and again.

    Their generations are counted from the iteration itself: 0 is its own, -1 that of the iteration before.
    """

    first: tuple[Iteration, ...]
    cycle: tuple[Iteration, ...]
    """At least one."""
    averages: bool = False
    """True if an update is divided by the number of iterations whose gradients were added up for it."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Hash, cached because plans are looked up by the thousand in a search."""
        return hash((self.first, self.cycle, self.averages))

    def __iter__(self) -> Iterator[Iteration]:
        return iter((*self.first, *self.cycle))

    def iteration(self, t: int) -> Iteration:
        """Return iteration ``t``, with generations counted from 0 at the schedule's adoption."""
        if t < len(self.first):
            return self.first[t].since(t)
        return self.cycle[(t - len(self.first)) % len(self.cycle)].since(t)

    def within(self, num_links: int) -> Timetable:
        """Return the timetable for so many links: sends of other links cross the first.

        That changes when they arrive, and no bit of them.
        """
        if self.num_links <= num_links:
            return self
        first, cycle = (tuple(iteration.within(num_links) for iteration in part) for part in (self.first, self.cycle))
        return replace(self, first=first, cycle=cycle)

    @cached_property
    def num_links(self) -> int:
        """Number of links that its sends cross."""
        return 1 + max((send.link for iteration in self for send in iteration.sends), default=0)

    @property
    def num_buckets(self) -> int:
        """Number of the last bucket that is ever sent, plus one."""
        return 1 + max((send.bucket for iteration in self for send in iteration.sends), default=-1)

    @property
    def iterations_per_update(self) -> float:
        """Iterations of the cycle to one step of the optimizer."""
        return len(self.cycle) / max(1, sum(iteration.update is not None for iteration in self.cycle))

    @property
    def delays(self) -> bool:
        """True if updates take gradients of earlier iterations than their own."""
        return any(iteration.update != 0 for iteration in self.cycle)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; each send is a list of its fields in order."""
        return {
            "first": [_to_json(iteration) for iteration in self.first],
            "cycle": [_to_json(iteration) for iteration in self.cycle],
            "averages": self.averages,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Timetable:
        """Return the timetable that `to_json` wrote."""
        first, cycle = (tuple(map(_from_json, data[part])) for part in ("first", "cycle"))
        return cls(first, cycle, data["averages"])


def _to_json(iteration: Iteration) -> dict[str, Any]:
    return {
        "sends": [list(astuple(send)) for send in iteration.sends],
        "update": iteration.update,
        "joins": iteration.joins,
    }


def _from_json(data: dict[str, Any]) -> Iteration:
    return Iteration(tuple(Send(*send) for send in data["sends"]), data["update"], data["joins"])
