"""Worker 0's part: whose bandwidth is tested when, and what all measurements together say."""

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

#: Seconds of latency by which a busy machine's echoes are late: no reason to measure anything anew.
LATE_ECHOES = 500e-6
#: Times the measurements of all links to a worker, beyond which what arrives there proves them wrong.
MORE_ARRIVES = 1.25
#: Seconds that such evidence reaches back: a test begun since may have been a part of it.
EVIDENCE_SPAN = 5.0
#: Seconds without word from a monitor after which its measurements are stale.
SILENCE = 3.0
#: Seconds between two attempts at a round that could not be completed.
RETRY = 0.5
#: Seconds that the first bandwidth tests wait for latencies.
FIRST_ECHOES = 5.0
#: Seconds after a routine test in which exchanges that were slow were slow because of it; half the interval if shorter.
JUST_TESTED = 2.0
#: Attempts at a round before it counts as done without those who do not answer; the first round waits for ever.
ROUND_TRIES = 3
#: Most seconds of its hosts' budgets that a test costs which could not run.
FAILURE_COST = 1.0
#: Seconds between two looks at what has come in; longer where looking would take more than a quarter of the time.
PUBLISH_INTERVAL = 0.1
#: Seconds between two states where nothing moved: measurements that were confirmed have another age.
HEARTBEAT = 5.0
#: Bytes per second that telling every worker of single links may take of worker 0's network.
TELLING_RATE = 1e6


class NotNowError(Exception):
    """No test out of turn for now; the message says why."""


class StoppingError(Exception):
    """The monitor stops: nothing more is measured."""


@dataclass(frozen=True)
class Round:
    """Which links a round has measured, and which it should have, but could not."""

    measured: list[Pair]
    not_measured: list[Pair]


class Coordinator:
    """Takes turns, keeps the bandwidth measurements, merges every worker's links, publishes the state."""

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
        """What arrived at a worker when its links were last doubted because of it, and when the network had changed."""
        self._round_began_at = float("-inf")
        self._wanted: asyncio.Future[Round] | None = None
        self._owed = ""
        self._wake = asyncio.Event()
        self._has_news = asyncio.Event()
        self._published_at = float("-inf")
        self._spacing = 0.0
        """Seconds between two states in which only single links have moved."""
        self._has_untold = False
        """Links have moved since the last state."""

    async def measure_now(self, reason: str) -> netmon_pb2.NetworkState:
        """Measure every worker in both directions; callers share one round, and its answer says which links it tested.

        Raises `NotNowError` if the budget is spent, or right after a routine test, whose traffic may be all that the
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
        """Have everyone measured now, or as soon as the budget has recovered."""
        try:
            self._want(reason)
        except NotNowError as error:
            if not self._owed:
                log.warning("%s", error)
            self._owed = reason
            self._has_news.set()  # measurements that are in doubt have become stale

    def close(self) -> None:
        """Tell those who wait for a measurement that it will not come."""
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_exception(StoppingError("this monitor stops"))
            self._wanted.exception()  # there may be nobody to take notice: a round can be the monitor's own wish

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

    # What others report ---------------------------------------------------------------------------------------------

    async def _follow(self, worker: int) -> None:
        """Keep the table of the links that leave one worker."""
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
        """More that arrives at a worker than any link to it should carry proves their measurements wrong.

        Once: what tests have not confirmed must be exceeded anew, or the network have changed, to be evidence again.
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
        """Merge what has come in, however much it was, once in a while; also where nothing comes in any more."""
        while True:
            begun = time.monotonic()
            self._publish()
            await asyncio.sleep(max(PUBLISH_INTERVAL, 3 * (time.monotonic() - begun)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SILENCE / 3):
                    await self._has_news.wait()
            self._has_news.clear()

    def _publish(self) -> None:
        """Merge what is known; a new revision if it moved materially."""
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
        """Tell everybody: of single links not before the last state can have reached them, of the summary at once."""
        revision = self._published.value.revision + (1 if self._has_untold or self._num_workers == 1 else 0)
        state = converters.state_to_proto(
            revision, time.time(), self._num_workers, list(self._links.values()), self._summary
        )
        self._published_at, self._has_untold = time.monotonic(), False
        self._spacing = self._num_workers * state.ByteSize() / TELLING_RATE
        self._published.set(state)

    def _current(self, pair: Pair, now: float) -> LinkState:
        """What is known of a link now."""
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
        """A latency that moved brings a bandwidth that may have moved too: measure now."""
        latency = self._summary.latency
        if self._latency_at_round > 0 and moved(self._latency_at_round, latency, CHANGE, LATE_ECHOES):
            self._latency_at_round = latency
            self._records.doubt(self._pairs, time.monotonic())
            self._want_when_affordable(f"latency is now {latency * 1e3:.3g} ms")

    # Taking turns ---------------------------------------------------------------------------------------------------

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
        """Let the first echoes pass before a test fills the links; not for ever, since a peer may be missing."""
        deadline = time.monotonic() + FIRST_ECHOES
        while time.monotonic() < deadline and not all(link.latency.is_fresh for link in self._links.values()):
            await asyncio.sleep(0.05)

    async def _round(self) -> None:
        """Test every worker once sending and once receiving, until all have been."""
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
        """What is left of a round, as batches.

        Those who have not been tested yet, if need be by another link than the one that failed, and the links tested
        before the network changed in the midst of it all.
        """
        current = {pair for pair in self._pairs if self._records.is_current(pair, self._round_began_at)}
        senders, receivers = {source for source, _ in current}, {target for _, target in current}
        links = {pair for batch in batches(self._num_workers, self._is_testable) for pair in batch}
        missing = {(i, j) for i, j in links if i not in senders or j not in receivers}
        outdated = {pair for pair in tried - current if self._is_testable(pair)}
        return disjoint_batches(sorted(missing | outdated))

    def _is_testable(self, pair: Pair) -> bool:
        """Whether a test may succeed: one with a host that does not answer keeps others waiting."""
        return not self._links[pair].is_silent and self._records.may_be_tested(pair, time.monotonic())

    async def _routine(self) -> None:
        """Test the link whose turn it is, if the budget allows."""
        pair = self._records.next_routine(self._is_testable)
        if pair is None:
            return
        allows = self._budget.allows_answer if self._records.is_doubted(pair) else self._budget.allows_background
        if allows(pair, time.monotonic()):
            self._routine_ended_at = float("inf")  # under way
            await self._test_batch([pair])
            self._routine_ended_at = time.monotonic()

    async def _test_batch(self, batch: list[Pair]) -> None:
        """Test links side by side. They begin as one, so that none supersedes another."""
        begun = time.monotonic()
        await asyncio.gather(*(self._test(pair, begun) for pair in batch))

    async def _test(self, pair: Pair, begun: float) -> None:
        """Have one link tested, if its workers answer; it costs them either way."""
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
