"""Worker 0's part: whose bandwidth is tested when, and what all figures together say."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

import grpc
from trimtab_api.channels import explain
from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon import wire
from trimtab_netmon.bandwidth import TEST_LIMIT
from trimtab_netmon.figures import Figure, LinkState, Method, Summary, is_new, moved, settle, summarize
from trimtab_netmon.iperf import PATIENCE
from trimtab_netmon.latest import Latest
from trimtab_netmon.metrics import Metrics
from trimtab_netmon.peers import Peers
from trimtab_netmon.settings import Settings
from trimtab_netmon.turns import Budget, Pair, expected, next_pair, waves

log = logging.getLogger("trimtab_netmon")

#: Relative change of a link's bandwidth, or of the summary's latency, after which everything is measured anew.
CHANGE = 0.1
#: Seconds of latency by which a busy machine's echoes are late: no reason to measure anything anew.
LATE_ECHOES = 500e-6
#: Seconds without word from a monitor after which its figures are stale.
SILENCE = 3.0
#: Seconds between two attempts at a round that could not be completed.
RETRY = 0.5
#: Seconds that the first bandwidth tests wait for latencies.
FIRST_ECHOES = 5.0
#: Seconds after a routine test in which exchanges that were slow were slow because of it; half the interval if shorter.
JUST_TESTED = 2.0
#: Attempts at a round before it counts as done without those who do not answer; the first round waits for ever.
ROUND_TRIES = 3


class NotNowError(Exception):
    """No test out of turn for now; the message says why."""


class StoppingError(Exception):
    """The monitor stops: nothing more is measured."""


class Coordinator:
    """Takes turns, keeps the bandwidth figures, merges every worker's links, publishes the state."""

    def __init__(
        self, settings: Settings, peers: Peers, published: Latest[netmon_pb2.NetworkState], metrics: Metrics
    ) -> None:
        self._peers = peers
        self._published = published
        self._metrics = metrics
        self._num_workers = len(settings.peers)
        self._interval = settings.probe_interval
        self._calm = min(JUST_TESTED, settings.probe_interval / 2)
        self._pairs = [(i, j) for i in range(self._num_workers) for j in range(self._num_workers) if i != j]
        self._budget = Budget(self._num_workers, settings.probe_budget, time.monotonic())
        self._bandwidths: dict[Pair, Figure] = {}
        self._tested_at: dict[Pair, float] = {}
        self._changed_at = float("-inf")
        self._changed: set[Pair] = set()
        """The links that a test begun at ``_changed_at`` showed changed."""
        self._routine_ended_at = float("-inf")
        self._tables: dict[int, tuple[float, dict[Pair, LinkState]]] = {}
        self._links = {pair: LinkState(*pair) for pair in self._pairs}
        self._summary = Summary()
        self._latency_at_round = 0.0
        self._round_began_at = float("-inf")
        self._wanted: asyncio.Future[None] | None = None
        self._owed = ""
        self._wake = asyncio.Event()

    async def measure_now(self, reason: str) -> netmon_pb2.NetworkState:
        """Measure every worker in both directions; callers share one round.

        Raises `NotNowError` if the budget is spent, or right after a routine test, whose traffic may be all that the
        caller has noticed.
        """
        if self._wanted is None and time.monotonic() < self._routine_ended_at + self._calm:
            raise NotNowError("a routine test has just slowed a link: ask again if it stays slow")
        await asyncio.shield(self._want(reason))
        return self._published.value

    def _want(self, reason: str) -> asyncio.Future[None]:
        if self._wanted is None:
            if not self._budget.allows_round(time.monotonic()):
                raise NotNowError("the probe budget is spent; the last figures stand until it has recovered")
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
            tasks.create_task(self._take_turns())
            tasks.create_task(self._watch_silence())

    # What others report ---------------------------------------------------------------------------------------------

    async def _follow(self, worker: int) -> None:
        """Keep the table of the links that leave one worker."""
        while True:
            try:
                async for table in self._peers.peer(worker).WatchLinks(netmon_pb2.WatchLinksRequest()):
                    links = {(link.source, link.target): wire.link_from_wire(link) for link in table.links}
                    self._tables[worker] = (time.monotonic(), links)
                    self._publish()
            except grpc.aio.AioRpcError:
                await asyncio.sleep(RETRY)

    async def _watch_silence(self) -> None:
        while True:
            await asyncio.sleep(SILENCE / 3)
            self._publish()

    def _publish(self) -> None:
        """Merge what is known; a new revision if it moved materially."""
        now = time.monotonic()
        settled = {pair: settle(self._links[pair], self._current(pair, now)) for pair in self._pairs}
        has_changed = any(is_new(self._links[pair], settled[pair]) for pair in self._pairs)
        self._links = settled
        self._summary = summarize(list(settled.values()), self._num_workers, self._summary)
        revision = self._published.value.revision + (1 if has_changed or self._num_workers == 1 else 0)
        state = wire.state_to_wire(
            revision, time.time(), self._num_workers, [settled[pair] for pair in self._pairs], self._summary
        )
        if revision != self._published.value.revision or state.summary.stale != self._published.value.summary.stale:
            self._published.set(state)
            self._react()
        else:
            self._published.value = state

    def _current(self, pair: Pair, now: float) -> LinkState:
        """What is known of a link now."""
        heard_at, links = self._tables.get(pair[0], (float("-inf"), {}))
        link = links.get(pair, LinkState(*pair))
        if now - heard_at > SILENCE and link.latency.value > 0:
            link = replace(link, latency=replace(link.latency, stale=True))
        bandwidth = self._bandwidths.get(pair, Figure())
        is_superseded = self._tested_at.get(pair, now) < self._changed_at
        return replace(link, bandwidth=replace(bandwidth, stale=is_superseded or link.latency.stale))

    def _react(self) -> None:
        """A latency that moved brings a bandwidth that may have moved too: measure now."""
        latency = self._summary.latency
        if self._latency_at_round > 0 and moved(self._latency_at_round, latency, CHANGE, LATE_ECHOES):
            self._latency_at_round = latency
            self._want_when_affordable(f"latency is now {latency * 1e3:.3g} ms")

    # Taking turns ---------------------------------------------------------------------------------------------------

    async def _take_turns(self) -> None:
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
        waiting = waves(self._num_workers)
        self._round_began_at = time.monotonic()
        tries = 0
        while waiting and (tries < ROUND_TRIES or not self._bandwidths):
            if tries > 0:
                await asyncio.sleep(RETRY)
            tries += 1
            for wave in waiting:
                self._latency_at_round = self._summary.latency
                await self._wave(wave)
            # Those that could not be tested, and those that were before the network changed in the midst of it all.
            waiting = [[pair for pair in wave if not self._is_current(pair)] for wave in waves(self._num_workers)]
            waiting = [wave for wave in waiting if wave]
        wanted, self._wanted = self._wanted, None
        if wanted is not None and not wanted.done():
            wanted.set_result(None)
        self._react()

    async def _routine(self) -> None:
        """Test the link whose figure is oldest, if the budget allows."""
        pair = next_pair(self._pairs, self._tested_at)
        if self._budget.allows_background(pair, time.monotonic()):
            self._routine_ended_at = float("inf")  # under way
            await self._wave([pair])
            self._routine_ended_at = time.monotonic()

    def _is_current(self, pair: Pair) -> bool:
        """Whether a link has been tested since the round began, and since anything changed.

        One that was as before while others of its wave were not may have been tested just before the change.
        """
        tested_at = self._tested_at.get(pair, float("-inf"))
        has_shown_it = tested_at == self._changed_at and pair in self._changed
        return tested_at >= self._round_began_at and (tested_at > self._changed_at or has_shown_it)

    async def _wave(self, wave: list[Pair]) -> None:
        """Test links side by side. They begin as one, so that none supersedes another."""
        begun = time.monotonic()
        await asyncio.gather(*(self._test(pair, begun) for pair in wave))

    async def _test(self, pair: Pair, begun: float) -> None:
        """Have one link tested, if its workers answer."""
        source, target = pair
        previous = self._bandwidths.get(pair, Figure()).value
        request = netmon_pb2.TestBandwidthRequest(target=target, expected_bytes_per_second=self._expected(pair))
        try:
            answer = await self._peers.peer(source).TestBandwidth(request, timeout=2 * (TEST_LIMIT + 3 * PATIENCE))
        except grpc.aio.AioRpcError as error:
            self._metrics.failed_tests.labels(reason=error.code().name.lower()).inc()
            log.info("no test from worker %d to worker %d: %s", source, target, explain(error))
            return
        self._budget.spend(pair, answer.duration_seconds, time.monotonic())
        self._metrics.tests.inc()
        self._metrics.test_seconds.inc(answer.duration_seconds)
        self._book(pair, begun, previous, answer)
        self._publish()

    def _expected(self, pair: Pair) -> float:
        """What a test of a link should find, bytes per second; 0: anything.

        A test for which nothing is expected, or what a fast network carried, fills the queue of a link that has just
        become slow, and the job's exchanges wait there for seconds.
        """
        current = [each for each, tested_at in self._tested_at.items() if tested_at >= self._changed_at]
        return expected(pair, {each: figure.value for each, figure in self._bandwidths.items()}, current)

    def _book(self, pair: Pair, begun: float, previous: float, answer: netmon_pb2.TestBandwidthResponse) -> None:
        """Keep a test's figure; one that differs from what was trusted supersedes all that were taken before it."""
        value = answer.bandwidth_bytes_per_second
        was_trusted = self._tested_at.get(pair, float("-inf")) >= self._changed_at
        self._bandwidths[pair] = Figure(value, Method(answer.method), time.time())
        self._tested_at[pair] = begun
        if previous > 0 and was_trusted and moved(previous, value, CHANGE):
            log.info("worker %d to worker %d carries %.3g bytes/s, no longer %.3g", *pair, value, previous)
            if begun > self._changed_at:
                self._changed_at, self._changed = begun, set()
            self._changed.add(pair)
            self._want_when_affordable("the bandwidth of a link changed")
