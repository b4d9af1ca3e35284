"""Schedules that delay, to prove the contract that delaying schedules will stand on."""

from __future__ import annotations

from trimtab.plan.schedules import Iteration, Schedule, Send
from trimtab_api import catalogue
from trimtab_api.catalogue import schedules


class EverySecondLater(Schedule):
    """Every second bucket is sent in every second iteration, together with what waited from the one before."""

    name = "toy-every-second-later"

    def iteration(self, t: int) -> Iteration:
        return Iteration(tuple(Send(b, t) for b in range(self.num_buckets) if b % 2 == 0 or t % 2 == 1), update=t)


class OneBehind(Schedule):
    """Every second bucket is sent one iteration late, first of all, and apart from what has come since."""

    name = "toy-one-behind"

    def iteration(self, t: int) -> Iteration:
        late = [Send(b, t - 1, link=1) for b in range(1, self.num_buckets, 2) if t > 0]
        return Iteration((*late, *(Send(b, t) for b in range(0, self.num_buckets, 2))), update=t, joins=False)


class EveryThird(Schedule):
    """The optimizer steps every third time, with the average of three iterations; nothing is sent between."""

    name = "toy-every-third"
    averages = True

    def iteration(self, t: int) -> Iteration:
        if t % 3 < 2:
            return Iteration((), update=None)
        return Iteration(tuple(Send(b, t, after="backward") for b in range(self.num_buckets)), update=t)


class Queues(Schedule):
    """Two generations under way, as in DeFT: one is sent in halves, and taken when whole, while the next adds up."""

    name = "toy-queues"

    def iteration(self, t: int) -> Iteration:
        half = range(t % 2, self.num_buckets, 2)
        iteration = t - t % 2 - 1  # closed by the last odd iteration
        sends = tuple(Send(b, iteration) for b in half) if iteration > 0 else ()
        return Iteration(sends, update=iteration if t % 2 == 1 and sends else None, joins=t % 2 == 1)


class LastFirst(Schedule):
    """Once backward has ended the last buckets are sent first, and all but one may arrive by the next forward pass.

    Their modules run first in it (ByteScheduler, P3).
    """

    name = "toy-last-first"

    def iteration(self, t: int) -> Iteration:
        first, *others = reversed(range(self.num_buckets))
        late = (Send(bucket, t, arrives="forward") for bucket in others)
        return Iteration((Send(first, t, after="backward"), *late), update=t)


class OnlyLastAwaited(Schedule):
    """As wait-free, but the optimizer waits only for the last bucket, and steps the others in the next forward pass."""

    name = "toy-only-last-awaited"

    def iteration(self, t: int) -> Iteration:
        *others, last = range(self.num_buckets)
        return Iteration((*(Send(bucket, t, arrives="forward") for bucket in others), Send(last, t)), update=t)


class NothingAwaited(Schedule):
    """All may arrive by the next forward pass; the vote has to travel with one of them."""

    name = "toy-nothing-awaited"

    def iteration(self, t: int) -> Iteration:
        return Iteration(tuple(Send(b, t, arrives="forward") for b in range(self.num_buckets)), update=t)


TOYS = (EverySecondLater, OneBehind, EveryThird, Queues, LastFirst, OnlyLastAwaited, NothingAwaited)


def register() -> None:
    """Let plans of this process name them."""
    for toy in TOYS:
        schedules.add(catalogue.Schedule(toy.name, toy.__doc__ or "", f"kit.training.toy_schedules:{toy.__name__}"))
