"""A sweep of tests: what it has still to measure, and its outcome. Pure: the coordinator runs the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimtab_netmon.coordination.link_estimates import BandwidthRecords
from trimtab_netmon.coordination.probe_schedule import Pair, batches, disjoint_batches

#: Attempts after which a sweep ends without the hosts that do not answer; the first sweep has no limit.
SWEEP_TRIES = 3


@dataclass(frozen=True)
class SweepOutcome:
    """The links that a sweep has measured, and those that it should have measured and could not."""

    measured: list[Pair]
    not_measured: list[Pair]


class Sweep:
    """One sweep: every host is to be measured sending and receiving."""

    def __init__(self, num_workers: int, records: BandwidthRecords, began_at: float) -> None:
        self.began_at = began_at
        self.num_tries = 0
        self.tried: set[Pair] = set()
        """The links whose tests the sweep has begun."""
        self._num_workers = num_workers
        self._records = records

    def remaining(self, is_testable: Callable[[Pair], bool]) -> list[list[Pair]]:
        """Return the links that are left to test, in batches that share no host.

        These are hosts that have not been tested, by another link if the first one failed, and links that were tested
        before the network changed during the sweep.
        """
        current = {pair for pair in self._records if self._records.is_current(pair, self.began_at)}
        senders, receivers = {source for source, _ in current}, {target for _, target in current}
        links = {pair for batch in batches(self._num_workers, is_testable) for pair in batch}
        missing = {(i, j) for i, j in links if i not in senders or j not in receivers}
        outdated = {pair for pair in self.tried - current if is_testable(pair)}
        return disjoint_batches(sorted(missing | outdated))

    def is_over(self, remaining: list[list[Pair]]) -> bool:
        """Return whether the sweep ends: nothing remains, or it was tried often enough and some link is known."""
        return (not remaining or self.num_tries >= SWEEP_TRIES) and self._records.num_tested > 0

    def outcome(self) -> SweepOutcome:
        """Return the links measured since the sweep began, and the tried or usual ones that were not."""
        measured = {pair for pair in self.tried if self._records.was_tested(pair, self.began_at)}
        usual = {pair for batch in batches(self._num_workers) for pair in batch}
        return SweepOutcome(sorted(measured), sorted((self.tried | usual) - measured))
