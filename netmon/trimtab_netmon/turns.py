"""Whose turn it is to be tested, and what may still be spent. Pure: times go in, decisions come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Seconds over which the budget is an average.
BUDGET_HORIZON = 600.0

Pair = tuple[int, int]
"""Source and target of a directed link."""


def waves(num_workers: int) -> list[list[Pair]]:
    """A round that measures every worker once sending and once receiving, as waves of tests on different hosts.

    Worker i sends to worker i + 1.
    """
    remaining = [(worker, (worker + 1) % num_workers) for worker in range(num_workers)] if num_workers > 1 else []
    result: list[list[Pair]] = []
    while remaining:
        taken: set[int] = set()
        wave: list[Pair] = []
        for pair in remaining:
            if not taken & set(pair):
                wave.append(pair)
                taken |= set(pair)
        result.append(wave)
        remaining = [pair for pair in remaining if pair not in wave]
    return result


def expected(pair: Pair, found: Mapping[Pair, float], current: Sequence[Pair]) -> float:
    """What a test of a link should find, in the unit of what was ``found`` before; 0 if nothing is known.

    What it was found to carry last, if that was not superseded since (it is among the ``current`` links); otherwise the
    least that a current link of either host carries, since most limits are a host's; otherwise what it once carried.
    """
    if pair in current:
        return found[pair]
    return min((found[each] for each in current if set(each) & set(pair)), default=found.get(pair, 0.0))


@dataclass
class Account:
    """What one host may still spend on tests, seconds; earns its share of time up to the horizon."""

    share: float
    balance: float
    updated_at: float

    def at(self, now: float) -> float:
        """The balance at a later time."""
        return min(self.share * BUDGET_HORIZON, self.balance + self.share * (now - self.updated_at))

    def spend(self, seconds: float, now: float) -> None:
        """Book a test; the balance may become negative."""
        self.balance, self.updated_at = self.at(now) - seconds, now


class Budget:
    """The accounts of all hosts."""

    def __init__(self, num_workers: int, share: float, now: float) -> None:
        self._full = share * BUDGET_HORIZON
        self._accounts = [Account(share, self._full, now) for _ in range(num_workers)]

    def spend(self, pair: Pair, seconds: float, now: float) -> None:
        """Book a test on both its hosts."""
        for worker in pair:
            self._accounts[worker].spend(seconds, now)

    def allows_round(self, now: float) -> bool:
        """Whether every host may be tested out of turn."""
        return all(account.at(now) > 0 for account in self._accounts)

    def allows_background(self, pair: Pair, now: float) -> bool:
        """Whether a routine test leaves both hosts half of their budget, kept for when something changes."""
        return all(self._accounts[worker].at(now) > self._full / 2 for worker in pair)


def next_pair(pairs: Sequence[Pair], tested_at: dict[Pair, float]) -> Pair:
    """The link whose figure is oldest; one never tested comes first."""
    return min(pairs, key=lambda pair: (tested_at.get(pair, float("-inf")), pair))
