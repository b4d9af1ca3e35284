"""Estimates of each link's bandwidth from tests, and evidence against them. Pure: times go in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab_api.throttling import Backoff

from trimtab_netmon.coordination.probe_schedule import (
    BACKGROUND_REFILL_SHARE,
    TYPICAL_TEST,
    Pair,
    expected,
    longest_interval,
    refill_rate,
)
from trimtab_netmon.links.measurements import LinkState, Measurement, moved

#: Relative change of a link's bandwidth that supersedes all earlier measurements.
CHANGE = 0.1
#: Seconds for which a suspect measurement still counts, while its link is tested again.
SUSPECT_GRACE = 8.0
#: Failures in a row after which a link's measurement is not to be trusted.
FAILURES_TO_DISTRUST = 2
#: Seconds until a link whose test failed is tested again; twice as long after each further failure.
FIRST_PAUSE = 0.4
LONGEST_PAUSE = 300.0
_BACKOFF = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
#: A measurement is too old after this many times the time in which every link can have its turn.
CYCLES = 3.0
#: No measurement is too old before it has this age [seconds].
LEAST_MAX_AGE = 60.0


@dataclass(frozen=True)
class MaxAge:
    """The age at which a measurement is too old: `CYCLES` times what it takes until every link had its turn."""

    by_turn: float
    """Seconds by the intervals between tests, and by the share of a host's time."""
    seconds_per_bandwidth: float
    """Seconds per byte/s of the link, by the budget in bytes: a test of a faster link sends more."""

    @classmethod
    def of(cls, num_workers: int, interval: float, share: float, bytes_per_day: float) -> MaxAge:
        """Return the limits by the shortest interval between tests and by the budgets of one host; any may be tightest.

        Args:
            num_workers: Number of hosts.
            interval: Shortest interval between tests, seconds.
            share: Most of a host's time that tests may take.
            bytes_per_day: Most bytes that tests may send and receive at a host in a day.
        """
        num_links = num_workers * (num_workers - 1)
        tests_of_host = 2 * (num_workers - 1)
        by_turn = num_links * longest_interval(interval, num_links)
        by_share = tests_of_host * TYPICAL_TEST / share
        by_bytes = tests_of_host * TYPICAL_TEST / (BACKGROUND_REFILL_SHARE * refill_rate(bytes_per_day))
        return cls(max(LEAST_MAX_AGE, CYCLES * max(by_turn, by_share)), CYCLES * by_bytes)

    def seconds(self, bandwidth: float) -> float:
        """Return the seconds after which the measurement of a link with such a bandwidth [bytes/s] is too old."""
        return max(self.by_turn, self.seconds_per_bandwidth * bandwidth)


@dataclass
class _Record:
    """The state of one link."""

    measurement: Measurement = field(default_factory=Measurement)
    tested_at: float = float("-inf")
    """When its last good test began."""
    tried_at: float = float("-inf")
    """When its last test began, good or not."""
    suspect_since: float = float("inf")
    """When the first evidence against its measurement was found; infinite: there is none."""
    last_evidence_at: float = float("-inf")
    """When the newest was."""
    failures: int = 0
    """In a row."""
    retry_at: float = float("-inf")
    pending_confirmation: float = 0.0
    """Bytes per second that the last test found, if it was disturbed, or the first, and found less than is believed;
    else 0."""

    @property
    def is_suspect(self) -> bool:
        return self.suspect_since < float("inf")

    def invalidate(self, at: float) -> None:
        """Note evidence found ``at`` that time; the grace of `SUSPECT_GRACE` still counts from the first."""
        self.suspect_since, self.last_evidence_at = min(self.suspect_since, at), max(self.last_evidence_at, at)

    def confirm(self, begun: float) -> None:
        """Note a good test that began at a time: only evidence found since remains."""
        self.suspect_since = self.last_evidence_at if self.last_evidence_at > begun else float("inf")


class BandwidthRecords:
    """The records of all links."""

    def __init__(self, pairs: Sequence[Pair], max_age: MaxAge) -> None:
        self._records = {pair: _Record() for pair in pairs}
        self._max_age = max_age
        self.changed_at = float("-inf")
        """When the tests that showed the network's last change began."""
        self._changed: set[Pair] = set()
        """The links whose tests showed it."""

    def __iter__(self) -> Iterator[Pair]:
        """Iterate over every link."""
        return iter(self._records)

    @property
    def num_tested(self) -> int:
        """Links that were tested at least once."""
        return sum(record.measurement.value > 0 for record in self._records.values())

    def measurement(self, pair: Pair, now: float, is_affordable: bool = True) -> Measurement:
        """Return the estimate of a link.

        Args:
            pair: The link.
            now: Monotonic seconds.
            is_affordable: True if the budget allows the test that a suspect estimate calls for.
        """
        record = self._records[pair]
        if record.measurement.value == 0:
            return record.measurement
        age = now - record.tested_at
        has_failed = record.failures >= FAILURES_TO_DISTRUST
        is_outdated = record.tested_at < self.changed_at and not has_failed
        is_contradicted = record.is_suspect and (not is_affordable or now - record.suspect_since > SUSPECT_GRACE)
        is_stale = is_outdated or is_contradicted or has_failed or age > self._max_age.seconds(record.measurement.value)
        return replace(record.measurement, age=age, stale=is_stale, is_outdated=is_outdated)

    def succeed(self, pair: Pair, begun: float, measurement: Measurement) -> bool:
        """Keep the result of a test; return whether it shows that the network has changed.

        A measurement that differs from the estimate supersedes all earlier ones. A lower bound does not contradict a
        higher value: it counts only when the repeated test was disturbed again. The estimate of a link that was never
        tested comes from its hosts' other links, and a first test that found less is repeated as well.
        """
        record = self._records[pair]
        record.tried_at, record.failures = begun, 0
        is_first = record.measurement.value == 0
        known = self.expected(pair) if is_first else record.measurement.value
        estimate = known if is_first or record.tested_at >= self.changed_at else 0.0
        if measurement.value < (1 - CHANGE) * estimate and (is_first or measurement.is_lower_bound):
            if record.pending_confirmation == 0:
                record.pending_confirmation = measurement.value
                record.invalidate(begun)
                return False
            if measurement.is_lower_bound:
                measurement = replace(measurement, value=max(measurement.value, record.pending_confirmation))
        record.measurement, record.tested_at, record.pending_confirmation = measurement, begun, 0.0
        record.confirm(begun)
        if is_first or estimate == 0 or not moved(estimate, measurement.value, CHANGE):
            return False
        if begun > self.changed_at:
            self.changed_at, self._changed = begun, set()
        self._changed.add(pair)
        return True

    def fail(self, pair: Pair, begun: float, now: float) -> None:
        """Note a test that could not run: the link is left alone for a while, longer after every failure."""
        record = self._records[pair]
        record.tried_at = begun
        record.retry_at = now + _BACKOFF.delay(record.failures)
        record.failures += 1

    def is_suspect(self, pair: Pair) -> bool:
        """Return whether evidence against a link's measurement waits for a test."""
        return self._records[pair].is_suspect

    def invalidate(self, pairs: Iterable[Pair], at: float) -> list[Pair]:
        """Note evidence of a time against links; return those that were tested, but not since then."""
        suspects = [pair for pair in pairs if -float("inf") < self._records[pair].tested_at < at]
        for pair in suspects:
            self._records[pair].invalidate(at)
        return suspects

    def revalidate(self, before: float) -> None:
        """Drop the evidence found up to ``before``: a sweep since then has tested every host and found no change.

        The links that it did not test have not changed either, since most limits are a host's. Evidence against a link
        whose own test was disturbed stays.
        """
        for record in self._records.values():
            if record.pending_confirmation == 0 and record.last_evidence_at <= before:
                record.suspect_since = float("inf")

    def may_be_tested(self, pair: Pair, now: float) -> bool:
        """Return whether a link is not being left alone after a failed test."""
        return now >= self._records[pair].retry_at

    def is_current(self, pair: Pair, since: float) -> bool:
        """Return whether a link was tested since a sweep began, since the last change, and since evidence was found.

        A link whose test found no change, in a batch that did, may have been tested just before the change.
        """
        record = self._records[pair]
        has_shown_it = record.tested_at == self.changed_at and pair in self._changed
        is_newer = record.tested_at > self.changed_at or has_shown_it
        return record.tested_at >= since and is_newer and not record.is_suspect

    def was_tested(self, pair: Pair, since: float) -> bool:
        """Return whether a good test of a link began since then."""
        return self._records[pair].tested_at >= since

    def expected(self, pair: Pair) -> float:
        """Return the bandwidth [bytes/s] that a test of a link should find; 0: unknown.

        A test that expects nothing, or as much as a fast network carried, fills the queue of a link that has just
        become slow, and the job's exchanges wait in that queue for seconds.
        """
        tested = {each: record for each, record in self._records.items() if record.measurement.value > 0}
        current = [each for each, record in tested.items() if record.tested_at >= self.changed_at]
        return expected(pair, {each: record.measurement.value for each, record in tested.items()}, current)

    def next_periodic(self, is_testable: Callable[[Pair], bool]) -> Pair | None:
        """Return the next link to test: first suspect ones, then ones never tried, then the one tried longest ago."""
        return min(filter(is_testable, self._records), key=self._urgency, default=None)

    def _urgency(self, pair: Pair) -> tuple[bool, float, Pair]:
        record = self._records[pair]
        return not record.is_suspect, record.tried_at, pair


#: A worker that receives more than this times the fastest link to it proves its links' bandwidths wrong.
MORE_ARRIVES = 1.25
#: Seconds for which a report of received traffic reaches back; a test begun within them may be part of that traffic.
EVIDENCE_SPAN = 5.0


class ReceiveRateEvidence:
    """Evidence from received traffic: more than a worker's links are estimated to carry makes them suspect."""

    def __init__(self, records: BandwidthRecords) -> None:
        self._records = records
        self._counted: dict[int, tuple[float, float]] = {}
        """The traffic [bytes/s] of each worker that last made its links suspect, and the records' `changed_at` then."""

    def flag_stale(self, worker: int, rate: float, links: Mapping[Pair, LinkState], now: float) -> bool:
        """Flag the links to a worker that receives more than they carry; return whether any is suspect now.

        The same traffic counts once: until the network changes, only more traffic than that is new evidence.

        Args:
            worker: The receiving worker.
            rate: Bytes/s that arrive there.
            links: The links as published.
            now: Monotonic seconds.
        """
        incoming = {pair: link.bandwidth for pair, link in links.items() if pair[1] == worker}
        most = max((bandwidth.value for bandwidth in incoming.values() if bandwidth.is_fresh), default=0.0)
        counted, changed_at = self._counted.get(worker, (0.0, 0.0))
        if changed_at == self._records.changed_at:
            most = max(most, counted)
        if not 0 < MORE_ARRIVES * most < rate:
            return False
        if not self._records.invalidate(incoming, now - EVIDENCE_SPAN):
            return False
        self._counted[worker] = (rate, self._records.changed_at)
        return True
