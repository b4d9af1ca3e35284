"""Which links are tested together, and what each host may spend on tests. Pure: times go in, decisions come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

#: Seconds over which a host's budget is averaged.
BUDGET_HORIZON = 600.0
#: Seconds that a test usually takes.
TYPICAL_TEST = 0.5
#: Share of what a host earns that routine tests may spend while its balance recovers.
TRICKLE = 0.5

Pair = tuple[int, int]
"""Source and target of a directed link."""


def batches(num_workers: int, is_testable: Callable[[Pair], bool] = lambda pair: True) -> list[list[Pair]]:
    """A round, which measures every host sending and receiving, as batches of tests that share no host.

    Worker i sends to worker i + 1; where that link cannot be tested, the next one that can takes its place.
    """
    chosen: list[Pair] = []
    for worker in range(num_workers):
        others = [(worker + step) % num_workers for step in range(1, num_workers)]
        sending = next(filter(is_testable, ((worker, other) for other in others)), None)
        receiving = next(filter(is_testable, ((other, worker) for other in reversed(others))), None)
        chosen += [pair for pair in (sending, receiving) if pair is not None and pair not in chosen]
    return disjoint_batches(sorted(chosen))


def disjoint_batches(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs in batches that name each worker once at most; greedy, so not always the fewest batches."""
    remaining = list(pairs)
    result: list[list[Pair]] = []
    while remaining:
        taken: set[int] = set()
        batch: list[Pair] = []
        for pair in remaining:
            if not taken & set(pair):
                batch.append(pair)
                taken |= set(pair)
        result.append(batch)
        remaining = [pair for pair in remaining if pair not in batch]
    return result


def expected(pair: Pair, found: Mapping[Pair, float], current: Sequence[Pair]) -> float:
    """What a test of a link should find, in the unit of ``found`` (the last result of each link); 0: nothing is known.

    A link among the ``current`` ones, whose results no change has superseded, should carry what it carried last.
    Another one should carry the least of the current links of either host, since most limits are a host's; if there
    are none, what it once carried.
    """
    if pair in current:
        return found[pair]
    return min((found[each] for each in current if set(each) & set(pair)), default=found.get(pair, 0.0))


@dataclass
class Account:
    """Seconds that one host may still spend on tests; the balance grows by its share of time, up to the horizon's."""

    share: float
    balance: float
    updated_at: float
    last: float = 0.0
    """What the last test cost, seconds."""

    def at(self, now: float) -> float:
        """The balance at a later time."""
        return min(self.share * BUDGET_HORIZON, self.balance + self.share * (now - self.updated_at))

    def spend(self, seconds: float, now: float) -> None:
        """Book a test; the balance may become negative."""
        self.balance, self.updated_at, self.last = self.at(now) - seconds, now, seconds

    def has_rested(self, now: float) -> bool:
        """Whether a part of what was earned since the last test would have paid for it."""
        return TRICKLE * self.share * (now - self.updated_at) > max(self.last, TYPICAL_TEST)


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
        """Whether every host can pay for a round."""
        return all(account.at(now) > 0 for account in self._accounts)

    def allows_answer(self, pair: Pair, now: float) -> bool:
        """Whether both hosts can pay for testing a link whose measurement is in doubt."""
        return all(self._accounts[worker].at(now) > 0 for worker in pair)

    def allows_background(self, pair: Pair, now: float) -> bool:
        """Whether a routine test may be made: it leaves both hosts half of their budget, for when something changes.

        Below that half a few tests are made all the same; otherwise none would reach a host for five minutes.
        """
        return all(
            account.at(now) > self._full / 2 or (account.at(now) > 0 and account.has_rested(now))
            for account in (self._accounts[worker] for worker in pair)
        )
