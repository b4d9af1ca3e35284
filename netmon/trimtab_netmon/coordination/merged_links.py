"""Worker 0's view of every link, merged from the workers' tables and the tests. Pure: times go in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trimtab_netmon.coordination.link_estimates import SUSPECT_GRACE, BandwidthRecords
from trimtab_netmon.coordination.probe_schedule import Pair
from trimtab_netmon.links.measurements import LinkState, Summary, apply_hysteresis, is_new, summarize

#: Seconds of silence of a monitor after which its measurements are stale.
MONITOR_TIMEOUT = 3.0


class MergedLinks:
    """All links: latency from the table of the worker where a link starts, bandwidth from the tests' records."""

    def __init__(self, num_workers: int, records: BandwidthRecords) -> None:
        self._num_workers = num_workers
        self._records = records
        self._tables: dict[int, tuple[float, Mapping[Pair, LinkState]]] = {}
        """The time of each worker's last table, and the links in it."""
        self.states = {pair: LinkState(*pair) for pair in records}
        """Every link as last merged. A value stays until it has moved materially."""
        self.summary = Summary()
        """The slowest of them."""

    def store_table(self, worker: int, links: Mapping[Pair, LinkState], now: float) -> None:
        """Keep a worker's table of the links that start there, for the next merge."""
        self._tables[worker] = (now, links)

    def merge(self, now: float, is_affordable: bool) -> bool:
        """Merge tables and records into `states` and `summary`; return whether any link has changed.

        Args:
            now: Monotonic seconds.
            is_affordable: True if the budget pays for the tests that are due; suspect measurements are stale otherwise.
        """
        settled = {
            pair: apply_hysteresis(state, self._current(pair, now, is_affordable))
            for pair, state in self.states.items()
        }
        has_changed = any(is_new(self.states[pair], settled[pair]) for pair in settled)
        is_settling = now - self._records.changed_at < SUSPECT_GRACE and is_affordable
        self.states = settled
        self.summary = summarize(list(settled.values()), self._num_workers, self.summary, is_settling)
        return has_changed

    def _current(self, pair: Pair, now: float, is_affordable: bool) -> LinkState:
        """Return the link's present state, before small changes are left out."""
        heard_at, links = self._tables.get(pair[0], (float("-inf"), {}))
        link = links.get(pair, LinkState(*pair))
        bandwidth = self._records.measurement(pair, now, is_affordable=is_affordable)
        if link.latency.value == 0:
            return replace(link, bandwidth=bandwidth)
        is_unreachable = link.is_unreachable or now - heard_at > MONITOR_TIMEOUT
        latency = replace(
            link.latency, stale=link.latency.stale or is_unreachable, age=link.latency.age + now - heard_at
        )
        bandwidth = replace(bandwidth, stale=bandwidth.stale or is_unreachable)
        return replace(link, latency=latency, bandwidth=bandwidth, is_unreachable=is_unreachable)
