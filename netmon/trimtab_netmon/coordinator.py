"""Worker 0's part of monitoring: it schedules the bandwidth tests, merges every worker's links, publishes the state.

A routine test measures one link in turn. A round measures every host sending and receiving, when something changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, replace

import grpc
from trimtab_api.channels import explain
from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon import converters
from trimtab_netmon.bandwidth import TEST_LIMIT
from trimtab_netmon.iperf import PATIENCE
from trimtab_netmon.measurements import LinkState, Summary, is_new, moved, settle, summarize
from trimtab_netmon.metrics import Metrics
from trimtab_netmon.peers import Peers
from trimtab_netmon.probe_schedule import Budget, Pair, batches, disjoint_batches
from trimtab_netmon.records import CHANGE, DOUBT_GRACE, BandwidthRecords, max_age
from trimtab_netmon.settings import Settings
from trimtab_netmon.watch_value import WatchValue

log = logging.getLogger("trimtab_netmon")

#: Changes of latency up to this [seconds] start no round: a busy machine answers echoes that late.
LATE_ECHOES = 500e-6
#: A worker that receives more than this times the fastest link to it proves its links' bandwidths wrong.
MORE_ARRIVES = 1.25
#: Seconds for which a report of received traffic reaches back; a test begun within them may be part of that traffic.
EVIDENCE_SPAN = 5.0
#: Seconds of silence of a monitor after which its measurements are stale.
SILENCE = 3.0
#: Seconds between two attempts to complete a round.
RETRY = 0.5
#: Most seconds that the first bandwidth tests wait for the first latencies.
FIRST_ECHOES = 5.0
#: Seconds for which slow exchanges are blamed on the routine test that has just ended; at most half the interval.
JUST_TESTED = 2.0
#: Attempts after which a round ends without the hosts that do not answer; the first round has no limit.
ROUND_TRIES = 3
#: Most seconds that a failed test costs its hosts' budgets.
FAILURE_COST = 1.0
#: Least seconds between two merges of the workers' tables; more where merging would take over a quarter of the time.
PUBLISH_INTERVAL = 0.1
#: Seconds between two states in which nothing has changed but the measurements' age.
HEARTBEAT = 5.0
#: Most bytes per second that worker 0 sends to report changes of single links.
TELLING_RATE = 1e6


class NotNowError(Exception):
    """No round may start now; the message says why."""


class StoppingError(Exception):
    """The monitor stops: nothing more is measured."""


@dataclass(frozen=True)
class Round:
    """The links that a round has measured, and those that it should have measured and could not."""

    measured: list[Pair]
    not_measured: list[Pair]


class Coordinator:
    """Schedules tests, keeps their results, merges every worker's links and publishes the state."""

    def __init__(
        self, settings: Settings, peers: Peers, published: WatchValue[netmon_pb2.NetworkState], metrics: Metrics
    ) -> None:
        self._peers = peers
        self._published = published
        self._metrics = metrics
        self._num_workers = len(settings.peers)
        self._interval = settings.probe_interval
        self._calm = min(JUST_TESTED, settings.probe_interval / 2)
        self._pairs = [(i, j) for i in range(self._num_workers) for j in range(self._num_workers) if i != j]
        self._budget = Budget(self._num_workers, settings.probe_budget, time.monotonic())
        self._records = BandwidthRecords(
            self._pairs, max_age(self._num_workers, settings.probe_interval, settings.probe_budget)
        )
        self._routine_ended_at = float("-inf")
        self._tables: dict[int, tuple[float, dict[Pair, LinkState]]] = {}
        self._links = {pair: LinkState(*pair) for pair in self._pairs}
        self._summary = Summary()
        self._latency_at_round = 0.0
        self._explained: dict[int, tuple[float, float]] = {}
        """By worker: the traffic [bytes/s] that last cast doubt on its links, and `changed_at` of the records then."""
        self._round_began_at = float("-inf")
        self._wanted: asyncio.Future[Round] | None = None
        self._owed = ""
        self._wake = asyncio.Event()
        self._has_news = asyncio.Event()
        self._published_at = float("-inf")
        self._spacing = 0.0
        """Least seconds between two states in which only single links have changed."""
        self._has_untold = False
        """Whether links have changed since the last state."""

    async def measure_now(self, reason: str) -> netmon_pb2.NetworkState:
        """Run a round, or join the one under way; the answer lists the links that it measured.

        Raises `NotNowError` if the budget is spent, and right after a routine test, whose traffic may be all that the
        caller has noticed.
        """
        if self._wanted is None and time.monotonic() < self._routine_ended_at + self._calm:
            raise NotNowError("a routine test has just slowed a link: ask again if it stays slow")
        done = await asyncio.shield(self._want(reason))
        return converters.with_round(self._published.value, done.measured, done.not_measured)

    def _want(self, reason: str) -> asyncio.Future[Round]:
        if self._wanted is None:
            if not self._budget.allows_round(time.monotonic()):
                raise NotNowError("the probe budget is spent; the last measurements stand until it has recovered")
            log.info("measuring every worker: %s", reason)
            self._metrics.rounds.inc()
            self._wanted = asyncio.get_running_loop().create_future()
            self._wake.set()
        return self._wanted

    def _want_when_affordable(self, reason: str) -> None:
        """Start a round now, or as soon as the budget has recovered."""
        try:
            self._want(reason)
        except NotNowError as error:
            if not self._owed:
                log.warning("%s", error)
            self._owed = reason
            self._has_news.set()  # doubted measurements are stale while no test can follow

    def close(self) -> None:
        """Fail the round that callers of `measure_now` wait for."""
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_exception(StoppingError("this monitor stops"))
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
        """Follow one worker's table of the links that start there."""
        while True:
            try:
                async for table in self._peers.peer(worker).WatchLinks(netmon_pb2.WatchLinksRequest()):
                    links = converters.links_from_proto(table, worker, self._num_workers)
                    self._tables[worker] = (time.monotonic(), links)
                    self._compare_with_arrivals(worker, converters.magnitude(table.received_bytes_per_second))
                    self._has_news.set()
            except grpc.aio.AioRpcError:
                await asyncio.sleep(RETRY)

    def _compare_with_arrivals(self, worker: int, rate: float) -> None:
        """Doubt the links to a worker that receives more than they are believed to carry.

        The same traffic counts once: until the network changes, only more traffic than that is new evidence.
        """
        links = [pair for pair in self._pairs if pair[1] == worker]
        most = max(
            (self._links[pair].bandwidth.value for pair in links if self._links[pair].bandwidth.is_fresh), default=0
        )
        explained, changed_at = self._explained.get(worker, (0.0, 0.0))
        if changed_at == self._records.changed_at:
            most = max(most, explained)
        if not 0 < MORE_ARRIVES * most < rate:
            return
        if self._records.doubt(links, time.monotonic() - EVIDENCE_SPAN):
            self._explained[worker] = (rate, self._records.changed_at)
            self._want_when_affordable(
                f"{rate:.3g} bytes/s arrive at worker {worker}, more than its links should carry"
            )

    async def _keep_publishing(self) -> None:
        """Merge the tables at intervals, whether many updates have come or none."""
        while True:
            begun = time.monotonic()
            self._publish()
            await asyncio.sleep(max(PUBLISH_INTERVAL, 3 * (time.monotonic() - begun)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SILENCE / 3):
                    await self._has_news.wait()
            self._has_news.clear()

    def _publish(self) -> None:
        """Merge all tables and results; publish if the summary has changed, or if a state is due."""
        now = time.monotonic()
        settled = {pair: settle(self._links[pair], self._current(pair, now)) for pair in self._pairs}
        has_changed = any(is_new(self._links[pair], settled[pair]) for pair in self._pairs)
        before, is_settling = self._summary, now - self._records.changed_at < DOUBT_GRACE and not self._owed
        self._links = settled
        self._summary = summarize(list(settled.values()), self._num_workers, before, is_settling)
        self._has_untold |= has_changed
        is_due = now - self._published_at > (self._spacing if self._has_untold else HEARTBEAT)
        if is_due or self._summary.says_other_than(before):
            self._publish_state()
        self._react()

    def _publish_state(self) -> None:
        """Publish the state, with a new revision if links have changed; `_spacing` then limits the next one."""
        revision = self._published.value.revision + (1 if self._has_untold or self._num_workers == 1 else 0)
        state = converters.state_to_proto(
            revision, time.time(), self._num_workers, list(self._links.values()), self._summary
        )
        self._published_at, self._has_untold = time.monotonic(), False
        self._spacing = self._num_workers * state.ByteSize() / TELLING_RATE
        self._published.set(state)

    def _current(self, pair: Pair, now: float) -> LinkState:
        """The link's present state: latency from its source's table, bandwidth from the records."""
        heard_at, links = self._tables.get(pair[0], (float("-inf"), {}))
        link = links.get(pair, LinkState(*pair))
        bandwidth = self._records.measurement(pair, now, is_affordable=not self._owed)
        if link.latency.value == 0:
            return replace(link, bandwidth=bandwidth)
        is_silent = link.is_silent or now - heard_at > SILENCE
        latency = replace(link.latency, stale=link.latency.stale or is_silent, age=link.latency.age + now - heard_at)
        bandwidth = replace(bandwidth, stale=bandwidth.stale or is_silent)
        return replace(link, latency=latency, bandwidth=bandwidth, is_silent=is_silent)

    def _react(self) -> None:
        """Start a round if the latency has changed: the bandwidth may have changed too."""
        latency = self._summary.latency
        if self._latency_at_round > 0 and moved(self._latency_at_round, latency, CHANGE, LATE_ECHOES):
            self._latency_at_round = latency
            self._records.doubt(self._pairs, time.monotonic())
            self._want_when_affordable(f"latency is now {latency * 1e3:.3g} ms")

    # Tests --------------------------------------------------------------------------------------------------------

    async def _follow_probe_schedule(self) -> None:
        await self._wait_for_latencies()
        self._want("nothing is known yet")
        while True:
            try:
                async with asyncio.timeout(self._interval):  # wait_for may lose a cancellation
                    await self._wake.wait()
            except TimeoutError:
                if not (self._owed and self._budget.allows_round(time.monotonic())):
                    await self._routine()
                    continue
                self._want(self._owed)
            self._wake.clear()
            self._owed = ""
            await self._round()

    async def _wait_for_latencies(self) -> None:
        """Wait for the first latencies, before tests fill the links; with a limit, since a peer may be missing."""
        deadline = time.monotonic() + FIRST_ECHOES
        while time.monotonic() < deadline and not all(link.latency.is_fresh for link in self._links.values()):
            await asyncio.sleep(0.05)

    async def _round(self) -> None:
        """Test every host once sending and once receiving; repeat what failed, up to `ROUND_TRIES` times."""
        self._round_began_at = time.monotonic()
        tried: set[Pair] = set()
        waiting = batches(self._num_workers, self._is_testable)
        tries = 0
        while (waiting and tries < ROUND_TRIES) or not self._records.num_tested:
            if tries > 0:
                await asyncio.sleep(RETRY)
                waiting = self._yet_to_test(tried)
            tries += 1
            for batch in waiting:
                self._latency_at_round = self._summary.latency
                tried |= set(batch)
                await self._test_batch(batch)
            waiting = self._yet_to_test(tried)
        if not waiting and self._records.changed_at < self._round_began_at:
            self._records.reassure(self._round_began_at)
        wanted, self._wanted = self._wanted, None
        self._publish()
        self._publish_state()
        if wanted is not None and not wanted.done():
            measured = {pair for pair in tried if self._records.was_tested(pair, self._round_began_at)}
            usual = {pair for batch in batches(self._num_workers) for pair in batch}
            wanted.set_result(Round(sorted(measured), sorted((tried | usual) - measured)))

    def _yet_to_test(self, tried: set[Pair]) -> list[list[Pair]]:
        """The rest of a round, in batches.

        It holds hosts that have not been tested, by another link where the first one failed, and links that were tested
        before the network changed during the round.
        """
        current = {pair for pair in self._pairs if self._records.is_current(pair, self._round_began_at)}
        senders, receivers = {source for source, _ in current}, {target for _, target in current}
        links = {pair for batch in batches(self._num_workers, self._is_testable) for pair in batch}
        missing = {(i, j) for i, j in links if i not in senders or j not in receivers}
        outdated = {pair for pair in tried - current if self._is_testable(pair)}
        return disjoint_batches(sorted(missing | outdated))

    def _is_testable(self, pair: Pair) -> bool:
        """Whether a test may succeed; testing a host that does not answer would only delay others."""
        return not self._links[pair].is_silent and self._records.may_be_tested(pair, time.monotonic())

    async def _routine(self) -> None:
        """Test the next link in turn, if the budget allows."""
        pair = self._records.next_routine(self._is_testable)
        if pair is None:
            return
        allows = self._budget.allows_answer if self._records.is_doubted(pair) else self._budget.allows_background
        if allows(pair, time.monotonic()):
            self._routine_ended_at = float("inf")  # under way
            await self._test_batch([pair])
            self._routine_ended_at = time.monotonic()

    async def _test_batch(self, batch: list[Pair]) -> None:
        """Test links at the same time, with one starting time, so that no result supersedes another."""
        begun = time.monotonic()
        await asyncio.gather(*(self._test(pair, begun) for pair in batch))

    async def _test(self, pair: Pair, begun: float) -> None:
        """Have one link tested and keep the result; a failed test costs its hosts' budgets as well."""
        source, target = pair
        expected = self._records.expected(pair)
        request = netmon_pb2.TestBandwidthRequest(target=target, expected_bytes_per_second=expected)
        try:
            answer = await self._peers.peer(source).TestBandwidth(request, timeout=2 * (TEST_LIMIT + 3 * PATIENCE))
            measurement, seconds = converters.test_result_from_proto(answer)
        except (grpc.aio.AioRpcError, converters.NonsenseError) as error:
            now = time.monotonic()
            reason = error.code().name.lower() if isinstance(error, grpc.aio.AioRpcError) else "nonsense"
            self._budget.spend(pair, min(now - begun, FAILURE_COST), now)
            self._records.fail(pair, begun, now)
            self._metrics.failed_tests.labels(reason=reason).inc()
            log.info("no test from worker %d to worker %d: %s", source, target, explain(error))
        else:
            self._budget.spend(pair, seconds, time.monotonic())
            self._metrics.tests.inc()
            self._metrics.test_seconds.inc(seconds)
            if self._records.succeed(pair, begun, measurement):
                log.info("worker %d to worker %d carries %.3g bytes/s now", source, target, measurement.value)
                self._want_when_affordable("the bandwidth of a link changed")
        self._has_news.set()
