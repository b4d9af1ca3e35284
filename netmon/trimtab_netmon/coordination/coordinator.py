"""Worker 0's coordination of monitoring: it schedules tests, merges the workers' tables and publishes.

A periodic probe measures one link in turn. A sweep measures every host sending and receiving, when
something changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass

import grpc
from trimtab_api.netmon.v1 import netmon_pb2
from trimtab_api.rpc.channels import format_grpc_error

from trimtab_netmon.coordination.link_estimates import CHANGE, BandwidthRecords, MaxAge, ReceiveRateEvidence
from trimtab_netmon.coordination.link_tests import LinkTests
from trimtab_netmon.coordination.merged_links import MONITOR_TIMEOUT, MergedLinks
from trimtab_netmon.coordination.probe_schedule import Budget, Pair, ProbeInterval
from trimtab_netmon.coordination.state_publisher import StatePublisher
from trimtab_netmon.coordination.sweep import Sweep, SweepOutcome
from trimtab_netmon.links import converters
from trimtab_netmon.links.broadcast import Broadcast
from trimtab_netmon.links.measurements import moved
from trimtab_netmon.metrics import Metrics
from trimtab_netmon.peers.channels import Peers
from trimtab_netmon.settings import Settings

log = logging.getLogger("trimtab_netmon")

#: Changes of latency up to this [seconds] start no sweep: a busy machine answers echoes that late.
LATE_ECHOES = 500e-6
#: Seconds between two attempts to complete a sweep, or to reach a monitor that does not answer.
RETRY = 0.5
#: Seconds without an answer after which a monitor is told to be absent.
ABSENT_AFTER = 5.0
#: Most seconds that the first bandwidth tests wait for the first latencies.
FIRST_ECHOES = 5.0
#: Seconds for which slow exchanges are blamed on the periodic probe that has just ended; at most half the interval.
JUST_TESTED = 2.0
#: Least seconds between two merges of the workers' tables; more where merging would take over a quarter of the time.
PUBLISH_INTERVAL = 0.1


class ProbeDeferredError(Exception):
    """No sweep may start now; the message says why."""


class ShuttingDownError(Exception):
    """The monitor stops: nothing more is measured."""


@dataclass(frozen=True)
class DebugState:
    """A view of the coordinator's plans at one moment, for tests and for people who ask why a link is not tested."""

    is_sweep_wanted: bool
    """True if a sweep is under way, or about to be."""
    num_links_tested: int
    """Links that a test has succeeded on."""
    interval_seconds: float
    """Seconds between two periodic probes, at present."""
    missing_from_budget: tuple[tuple[float, float], ...]
    """Seconds and bytes, by host, that its budget lacked after the last test there."""


class Coordinator:
    """The schedule of probes and sweeps, by the reports of workers and the requests of callers."""

    def __init__(
        self, settings: Settings, peers: Peers, published: Broadcast[netmon_pb2.NetworkState], metrics: Metrics
    ) -> None:
        self._peers = peers
        self._metrics = metrics
        self._num_workers = len(settings.peers)
        self._shortest_interval = settings.probe_interval
        self._interval = ProbeInterval(settings.probe_interval, self._num_workers * (self._num_workers - 1))
        self._calm = min(JUST_TESTED, settings.probe_interval / 2)
        self._budget = Budget(self._num_workers, settings.probe_budget, settings.probe_bytes_per_day, time.monotonic())
        self._records = BandwidthRecords(
            [(i, j) for i in range(self._num_workers) for j in range(self._num_workers) if i != j],
            MaxAge.of(self._num_workers, settings.probe_interval, settings.probe_budget, settings.probe_bytes_per_day),
        )
        self._links = MergedLinks(self._num_workers, self._records)
        self._receive_rates = ReceiveRateEvidence(self._records)
        self._tests = LinkTests(peers, self._records, self._budget, metrics, self._on_test_end)
        self._publisher = StatePublisher(published, self._num_workers)
        self._routine_ended_at = float("-inf")
        self._latency_at_sweep = 0.0
        self._wanted: asyncio.Future[SweepOutcome] | None = None
        """The future that callers of `measure_now` wait for; None when no sweep is under way or about to be."""
        self._deferred_sweep_reason = ""
        """The reason for a sweep that the budget does not allow yet; empty when none is due."""
        self._wake = asyncio.Event()
        self._has_news = asyncio.Event()
        self._absent: dict[int, tuple[float, str]] = {}
        """The monitors that do not answer: since when, and why."""

    async def measure_now(self, reason: str) -> netmon_pb2.NetworkState:
        """Run a sweep, or join the one under way; the answer lists the links that it measured.

        Raises:
            ProbeDeferredError: If the budget is spent, or a periodic probe has just ended, whose traffic may be all
                that the caller has noticed.
        """
        if self._wanted is None and time.monotonic() < self._routine_ended_at + self._calm:
            raise ProbeDeferredError("a periodic probe has just slowed a link: ask again if it stays slow")
        done = await asyncio.shield(self._request_sweep(reason))
        return converters.with_sweep(self._publisher.last, done.measured, done.not_measured)

    def _request_sweep(self, reason: str) -> asyncio.Future[SweepOutcome]:
        if self._wanted is None:
            if not self._budget.allows_sweep(time.monotonic()):
                raise ProbeDeferredError(
                    "the probe budget is spent; the last measurements stand until it has recovered"
                )
            log.info("starting a full sweep of all workers, because %s", reason)
            self._metrics.rounds.inc()
            self._wanted = asyncio.get_running_loop().create_future()
            self._wake.set()
        return self._wanted

    def _request_sweep_when_budget_allows(self, reason: str) -> None:
        """Start a sweep now, or as soon as the budget has recovered; test links often again."""
        self._interval.reset()
        try:
            self._request_sweep(reason)
        except ProbeDeferredError as error:
            if not self._deferred_sweep_reason:
                log.warning("%s", error)
            self._deferred_sweep_reason = reason
            self._has_news.set()  # suspect measurements are stale while no test can follow

    def debug_state(self) -> DebugState:
        """Return what is about to be tested, and what it may cost; nothing changes."""
        return DebugState(
            is_sweep_wanted=self._wanted is not None,
            num_links_tested=self._records.num_tested,
            interval_seconds=self._interval.seconds,
            missing_from_budget=self._budget.missing,
        )

    def close(self) -> None:
        """Fail the sweep that callers of `measure_now` wait for."""
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_exception(ShuttingDownError("this monitor stops"))
            self._wanted.exception()  # marks it as retrieved: nobody may be waiting

    async def run(self) -> None:
        """Test and publish until cancelled."""
        if self._num_workers == 1:
            self._publish()
            return
        async with asyncio.TaskGroup() as tasks:
            for worker in range(self._num_workers):
                tasks.create_task(self._follow(worker))
            tasks.create_task(self._follow_probe_schedule())
            tasks.create_task(self._keep_publishing())

    # What workers report ---------------------------------------------------------------------------------------------

    async def _follow(self, worker: int) -> None:
        """Follow one worker's table of the links that start there, and its report of received traffic."""
        while True:
            try:
                async for table in self._peers.peer(worker).WatchLinks(netmon_pb2.WatchLinksRequest()):
                    now = time.monotonic()
                    self._absent.pop(worker, None)
                    self._links.store_table(worker, converters.links_from_proto(table, worker, self._num_workers), now)
                    rate = converters.magnitude(table.received_bytes_per_second)
                    if self._receive_rates.flag_stale(worker, rate, self._links.states, now):
                        self._request_sweep_when_budget_allows(
                            f"{rate:.3g} bytes/s arrive at worker {worker}, more than the expected bandwidth of its"
                            " links"
                        )
                    self._has_news.set()
            except grpc.aio.AioRpcError as error:
                since, _ = self._absent.get(worker, (time.monotonic(), ""))
                self._absent[worker] = since, format_grpc_error(error)
                await asyncio.sleep(RETRY)

    @property
    def _problem(self) -> str:
        """Return why nothing new is measured, in one sentence; empty while tests succeed."""
        latest = time.monotonic() - ABSENT_AFTER  # one that only restarts wakes no reader
        for worker, (since, why) in self._absent.items():
            if since < latest:
                return f"the monitor of worker {worker} does not answer: {why}"
        return self._tests.problem

    async def _keep_publishing(self) -> None:
        """Merge the tables at intervals, whether many updates have come or none."""
        while True:
            begun = time.monotonic()
            self._publish()
            await asyncio.sleep(max(PUBLISH_INTERVAL, 3 * (time.monotonic() - begun)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MONITOR_TIMEOUT / 3):
                    await self._has_news.wait()
            self._has_news.clear()

    def _publish(self) -> None:
        """Merge all tables and results; publish if the summary has changed, or if a state is due."""
        now, before = time.monotonic(), self._links.summary
        self._publisher.has_unpublished |= self._links.merge(now, is_affordable=not self._deferred_sweep_reason)
        is_news = self._links.summary.differs_from(before) or bool(self._problem) != bool(self._publisher.last.problem)
        if is_news or self._publisher.is_due(now):
            self._publisher.publish(self._links, self._problem)
        self._react_to_latency()

    def _react_to_latency(self) -> None:
        """Start a sweep if the latency has changed: the bandwidth may have changed too."""
        latency = self._links.summary.latency
        if self._latency_at_sweep > 0 and moved(self._latency_at_sweep, latency, CHANGE, LATE_ECHOES):
            self._latency_at_sweep = latency
            self._records.invalidate(self._records, time.monotonic())
            self._request_sweep_when_budget_allows(f"latency changed to {latency * 1e3:.3g} ms")

    # When links are tested -------------------------------------------------------------------------------------------

    async def _follow_probe_schedule(self) -> None:
        """Run a sweep at the start and on request, and a periodic probe whenever an interval has passed."""
        await self._wait_for_latencies()
        self._request_sweep("no measurements exist yet")
        tested_at = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(self._shortest_interval):  # wait_for may lose a cancellation
                    await self._wake.wait()
            except TimeoutError:
                now = time.monotonic()
                if not (self._deferred_sweep_reason and self._budget.allows_sweep(now)):
                    if now - tested_at >= self._interval.seconds:
                        tested_at = now
                        await self._run_periodic_probe()
                    continue
                self._request_sweep(self._deferred_sweep_reason)
            self._wake.clear()
            self._deferred_sweep_reason = ""
            await self._run_sweep()

    async def _wait_for_latencies(self) -> None:
        """Wait for the first latencies, before tests fill the links; with a limit, since a peer may be missing."""
        deadline = time.monotonic() + FIRST_ECHOES
        while time.monotonic() < deadline and not all(link.latency.is_fresh for link in self._links.states.values()):
            await asyncio.sleep(0.05)

    async def _run_sweep(self) -> None:
        """Test every host once sending and once receiving; repeat what failed."""
        current = Sweep(self._num_workers, self._records, time.monotonic())
        while not current.is_over(remaining := current.remaining(self._is_testable)):
            if current.num_tries > 0:
                await asyncio.sleep(RETRY)
                remaining = current.remaining(self._is_testable)
            current.num_tries += 1
            for batch in remaining:
                self._latency_at_sweep = self._links.summary.latency
                current.tried |= set(batch)
                await self._tests.run(batch)
        if not remaining and self._records.changed_at < current.began_at:
            self._records.revalidate(current.began_at)
        wanted, self._wanted = self._wanted, None
        self._publish()
        self._publisher.publish(self._links, self._problem)
        if wanted is not None and not wanted.done():
            wanted.set_result(current.outcome())

    async def _run_periodic_probe(self) -> None:
        """Test the next link in turn, if the budget allows."""
        pair = self._records.next_periodic(self._is_testable)
        if pair is None:
            return
        allows = self._budget.allows_recheck if self._records.is_suspect(pair) else self._budget.allows_periodic
        if allows(pair, time.monotonic()):
            begun, self._routine_ended_at = time.monotonic(), float("inf")  # under way
            await self._tests.run([pair])
            self._routine_ended_at = time.monotonic()
            if self._records.is_current(pair, begun):
                self._interval.confirm()

    def _is_testable(self, pair: Pair) -> bool:
        """Return whether a test may succeed; testing a host that does not answer would only delay others."""
        return not self._links.states[pair].is_unreachable and self._records.may_be_tested(pair, time.monotonic())

    def _on_test_end(self, has_changed: bool) -> None:
        """Measure every worker once a test has shown that the network changed."""
        if has_changed:
            self._request_sweep_when_budget_allows("the bandwidth of a link changed")
        self._has_news.set()
