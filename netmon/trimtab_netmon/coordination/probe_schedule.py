"""The schedule of tests: the links tested together, and each host's budget. Pure: times go in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trimtab_api.throttling import Backoff, TokenBucket

#: Seconds over which a host's budget is averaged.
BUDGET_HORIZON = 600.0
#: Seconds that a test usually takes.
TYPICAL_TEST = 0.5
#: Share of a host's refill that periodic probes may spend while its balance recovers.
BACKGROUND_REFILL_SHARE = 0.5
#: Confirmed tests in a row after which the interval between tests doubles: as many as there are links, within bounds.
FEWEST_TO_DOUBLE, MOST_TO_DOUBLE = 10, 100
#: The interval grows to so many times its first value at most.
MOST_DOUBLED = 64.0
#: Seconds in which all links have their turn, however far the interval has grown.
LONGEST_CYCLE = 6 * 3600.0

Pair = tuple[int, int]
"""Source and target of a directed link."""


def batches(num_workers: int, is_testable: Callable[[Pair], bool] = lambda pair: True) -> list[list[Pair]]:
    """Return the tests of a sweep, which measures every host sending and receiving, in batches that share no host.

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
    """Group pairs into batches that name each worker once at most; greedy, so not always the fewest batches."""
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
    """Return what a test of a link should find, in the unit of ``found``; 0: nothing is known.

    A link among the ``current`` ones, whose results no change has superseded, should carry what it carried last.
    Another one should carry the least of the current links of either host, since most limits are a host's; if there
    are none, what it once carried.
    """
    if pair in current:
        return found[pair]
    return min((found[each] for each in current if set(each) & set(pair)), default=found.get(pair, 0.0))


class ProbeInterval:
    """The time between two periodic tests: it doubles while they confirm what is known, and starts anew otherwise.

    Args:
        shortest: Seconds between two tests at first, and after a change.
        num_links: Links that take turns.
    """

    def __init__(self, shortest: float, num_links: int) -> None:
        self._per_doubling = min(max(num_links, FEWEST_TO_DOUBLE), MOST_TO_DOUBLE)
        self._backoff = Backoff(shortest, longest_interval(shortest, num_links))
        self._num_confirmed = 0

    @property
    def seconds(self) -> float:
        """Seconds until the next test."""
        return self._backoff.delay(self._num_confirmed // self._per_doubling)

    def confirm(self) -> None:
        """Note a test that found what was known."""
        if self.seconds < self._backoff.longest:
            self._num_confirmed += 1

    def reset(self) -> None:
        """Test often again: a figure changed, or evidence speaks against one."""
        self._num_confirmed = 0


def longest_interval(shortest: float, num_links: int) -> float:
    """Return the longest interval between two tests, in seconds.

    All links have their turn in `LONGEST_CYCLE` if the first interval allows.
    """
    return max(shortest, min(shortest * MOST_DOUBLED, LONGEST_CYCLE / max(1, num_links)))


class HostBudget(TokenBucket):
    """The seconds or the bytes that one host may still spend on tests."""

    def __init__(self, rate: float, capacity: float, least: float, now: float) -> None:
        """Start full.

        Args:
            rate: Refill per second.
            capacity: Most that is kept.
            least: What a test is taken to cost at least.
            now: Monotonic seconds.
        """
        super().__init__(capacity, rate, filled_at=now)
        self._rate = rate
        self._least = least
        self._last_cost = 0.0

    def spend(self, cost: float, now: float) -> None:
        """Book a test; the balance may become negative."""
        super().spend(cost, now)
        self._last_cost = cost

    def allows_periodic(self, now: float) -> bool:
        """Return whether the host can pay for a periodic test.

        Half of the capacity must be left, or anything if a part of what was added since the last test would have paid
        for that test.
        """
        refilled = BACKGROUND_REFILL_SHARE * self._rate * (now - self.spent_at)
        has_rested = refilled > max(self._last_cost, self._least)
        return self.level(now) > self.capacity / 2 or (self.level(now) > 0 and has_rested)


class Budget:
    """The budgets of all hosts: one of seconds and one of bytes each.

    Args:
        num_workers: Number of hosts.
        share: Most of a host's time that tests may take, averaged over `BUDGET_HORIZON`.
        bytes_per_day: Most bytes that tests may send and receive at a host in any 24 hours. Half of them may be spent
        at once; the other half is added over the day.
        now: Monotonic seconds.
    """

    def __init__(self, num_workers: int, share: float, bytes_per_day: float, now: float) -> None:
        self._seconds = [HostBudget(share, share * BUDGET_HORIZON, TYPICAL_TEST, now) for _ in range(num_workers)]
        self._bytes = [HostBudget(refill_rate(bytes_per_day), bytes_per_day / 2, 0.0, now) for _ in range(num_workers)]

    def spend(self, pair: Pair, seconds: float, num_bytes: float, now: float) -> None:
        """Book a test on both its hosts."""
        for worker in pair:
            self._seconds[worker].spend(seconds, now)
            self._bytes[worker].spend(num_bytes, now)

    def allows_sweep(self, now: float) -> bool:
        """Return whether every host can pay for a sweep."""
        return all(budget.level(now) > 0 for budget in (*self._seconds, *self._bytes))

    def allows_recheck(self, pair: Pair, now: float) -> bool:
        """Return whether both hosts can pay for testing a link whose measurement is suspect."""
        return all(budget.level(now) > 0 for budget in self._accounts(pair))

    def allows_periodic(self, pair: Pair, now: float) -> bool:
        """Return whether a periodic test may be made: it leaves both hosts half of their budget.

        The half is for when something changes. Below it a few tests are made all the same; otherwise none would reach a
        host for five minutes.
        """
        return all(budget.allows_periodic(now) for budget in self._accounts(pair))

    @property
    def missing(self) -> tuple[tuple[float, float], ...]:
        """Seconds and bytes that each host's budgets lacked after the last test that was booked there."""
        accounts = zip(self._seconds, self._bytes, strict=True)
        return tuple((seconds.capacity - seconds.tokens, size.capacity - size.tokens) for seconds, size in accounts)

    def _accounts(self, pair: Pair) -> list[HostBudget]:
        return [accounts[worker] for worker in pair for accounts in (self._seconds, self._bytes)]


def refill_rate(bytes_per_day: float) -> float:
    """Return the bytes per second that are added to a host's budget."""
    return bytes_per_day / 2 / 86400
