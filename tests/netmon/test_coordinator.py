"""Rounds of bandwidth tests while the network changes in the midst of them; the tests' answers are made up."""

import asyncio
import itertools
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import pytest
from trimtab_api.netmon.v1 import netmon_pb2
from trimtab_netmon.coordination.coordinator import Coordinator, ProbeDeferredError, ShuttingDownError
from trimtab_netmon.links import converters
from trimtab_netmon.links.broadcast import Broadcast
from trimtab_netmon.links.measurements import LinkState, Measurement, Method
from trimtab_netmon.metrics import Metrics
from trimtab_netmon.settings import Endpoint, Settings

NUM_WORKERS = 4
FAST, SLOW = 125e6, 12.5e6


@dataclass
class MadeUpNetwork:
    """Monitors that answer what the network carries at the time; it changes just before the n-th test."""

    before: float
    after: float
    changes_before_test: int
    latency: float = 0.002
    tests: list = field(default_factory=list)
    broken: set = field(default_factory=set)
    """Links whose tests fail."""
    received: dict = field(default_factory=dict)
    """What arrives at workers, bytes per second."""
    method: int = Method.IPERF3.value
    silent: set = field(default_factory=set)
    """Links whose target answers no echo."""
    unseen: set = field(default_factory=set)
    """Links that never pause, so that no echo shows their latency any more."""

    def peer(self, worker):
        return MadeUpPeer(self, worker)


@dataclass
class MadeUpPeer:
    network: MadeUpNetwork
    worker: int

    async def WatchLinks(self, request):  # noqa: N802 - as in the contract
        while True:
            links = [
                LinkState(self.worker, target, Measurement(self.network.latency, Method.UDP_ECHO, time.time()))
                for target in range(NUM_WORKERS)
                if target != self.worker
            ]
            table = netmon_pb2.LinkTable(source=self.worker, links=[converters.link_to_proto(each) for each in links])
            table.received_bytes_per_second = self.network.received.get(self.worker, 0.0)
            for link in table.links:
                pair = (link.source, link.target)
                link.latency.method = self.network.method
                link.silent = pair in self.network.silent
                link.latency.stale = pair in self.network.silent | self.network.unseen
            yield table
            await asyncio.sleep(0.05)

    async def TestBandwidth(self, request, timeout):  # noqa: N802 - as in the contract
        network = self.network
        network.tests.append((self.worker, request.target, request.expected_bytes_per_second))
        has_changed = len(network.tests) > network.changes_before_test
        await asyncio.sleep(0.02)
        if (self.worker, request.target) in network.broken:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.FAILED_PRECONDITION, nothing, nothing, "no data arrived")
        return netmon_pb2.TestBandwidthResponse(
            bandwidth_bytes_per_second=network.after if has_changed else network.before,
            method=network.method,
            duration_seconds=0.1,
        )


@asynccontextmanager
async def measured(network, probe_interval=60.0, probe_budget=0.1):
    """A coordinator of this network whose first round is over, and what it publishes."""
    peers = tuple(Endpoint("127.0.0.1", 9000 + 2 * worker) for worker in range(NUM_WORKERS))
    settings = Settings(0, peers, peers[0], "lo", probe_interval, probe_budget, metrics_port=0)
    published = Broadcast(netmon_pb2.NetworkState(num_workers=NUM_WORKERS))
    coordinator = Coordinator(settings, network, published, Metrics())
    running = asyncio.create_task(coordinator.run())
    try:
        async with asyncio.timeout(20):
            while len(network.tests) < NUM_WORKERS or coordinator.debug_state().is_sweep_wanted:
                assert not running.done(), "worker 0's monitor has ended"
                await asyncio.sleep(0.02)
            yield coordinator, published
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("before_test", [4, 5, 6])
@pytest.mark.parametrize(("before", "after"), [(SLOW, FAST), (FAST, SLOW)])
def test_the_round_in_which_the_network_changes_ends_with_what_it_carries_now(before, after, before_test):
    """Tests 0 to 3 are the first round, 4 and 5 the next one's first batch. No routine test comes to its help."""

    async def scenario():
        async with measured(MadeUpNetwork(before, after, before_test)) as (coordinator, published):
            assert published.value.summary.bandwidth_bytes_per_second == pytest.approx(before)
            await coordinator.measure_now("a step took longer")
            return published.value.summary.bandwidth_bytes_per_second

    assert asyncio.run(scenario()) == pytest.approx(after)


def test_a_test_expects_what_its_hosts_last_ones_found():
    """A link that has just become slow, or was never tested, is not filled as a fast one."""

    async def scenario():
        network = MadeUpNetwork(FAST, SLOW, changes_before_test=NUM_WORKERS)
        async with measured(network) as (coordinator, _):
            await coordinator.measure_now("a step took longer")
        undisturbed = MadeUpNetwork(FAST, FAST, 0)
        async with measured(undisturbed, probe_interval=0.2, probe_budget=0.5) as (coordinator, _):
            while coordinator.debug_state().num_links_tested <= NUM_WORKERS:
                await asyncio.sleep(0.02)
            return network.tests, undisturbed.tests

    tests, with_routine = asyncio.run(scenario())
    assert [expected for *_, expected in tests[:4]] == [0, 0, FAST, FAST]
    assert [expected for *_, expected in tests[4:8]] == [FAST, FAST, SLOW, SLOW]
    never_tested = next(each for each in with_routine if (each[0] + 1) % NUM_WORKERS != each[1])
    assert never_tested[2] == FAST


def test_right_after_a_routine_test_nobody_is_measured_out_of_turn_but_soon_again():
    """What a caller noticed may be the traffic of that test, and nothing else."""

    async def scenario():
        network = MadeUpNetwork(FAST, FAST, 0)
        async with measured(network, probe_interval=1.0, probe_budget=0.5) as (coordinator, _):
            refusals = []
            while not refusals:  # until asked right after one
                num_tests = len(network.tests)
                while len(network.tests) == num_tests:
                    await asyncio.sleep(0.005)
                try:
                    await coordinator.measure_now("a step took longer")
                except ProbeDeferredError as error:
                    refusals.append(str(error))
            assert refusals == ["a periodic probe has just slowed a link: ask again if it stays slow"]
            num_tests = len(network.tests)
            while True:
                try:
                    state = await coordinator.measure_now("it is slow still")
                    break
                except ProbeDeferredError:
                    await asyncio.sleep(0.01)
            assert len(network.tests) >= num_tests + NUM_WORKERS
            assert state.summary.bandwidth_bytes_per_second == pytest.approx(FAST)

    asyncio.run(scenario())


def test_who_waits_for_a_measurement_hears_that_the_monitor_stops():
    async def scenario():
        async with measured(MadeUpNetwork(FAST, FAST, 0)) as (coordinator, _):
            waiting = asyncio.create_task(coordinator.measure_now("a step took longer"))
            while not coordinator.debug_state().is_sweep_wanted:
                await asyncio.sleep(0)
        coordinator.close()
        await waiting

    with pytest.raises(ShuttingDownError):
        asyncio.run(scenario())


async def until(condition):
    """Wait; who calls has set a deadline."""
    while not condition():
        await asyncio.sleep(0.01)


def links_of(state):
    return {(link.source, link.target): link for link in state.links}


def test_a_method_that_is_not_known_here_does_not_end_the_monitor():
    """From a newer monitor, or one that means harm."""

    async def scenario():
        async with measured(MadeUpNetwork(FAST, FAST, 0, method=77)) as (_, published):
            await until(lambda: published.value.summary.bandwidth_bytes_per_second > 0)
            assert published.value.summary.bandwidth_method == netmon_pb2.METHOD_UNSPECIFIED
            assert published.value.summary.latency_seconds == pytest.approx(0.002)

    asyncio.run(scenario())


@pytest.mark.parametrize("bandwidth", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_bandwidth_that_cannot_be_is_a_failed_test(bandwidth):
    async def scenario():
        network = MadeUpNetwork(FAST, bandwidth, changes_before_test=NUM_WORKERS)
        async with measured(network) as (coordinator, published):
            state = await coordinator.measure_now("a step took longer")
            assert not state.measured
            assert len(state.not_measured) >= NUM_WORKERS
            assert published.value.summary.bandwidth_bytes_per_second == FAST
            await until(lambda: published.value.summary.stale)

    asyncio.run(scenario())


def test_an_answer_says_which_links_were_measured_and_which_could_not_be():
    async def scenario():
        network = MadeUpNetwork(FAST, FAST, 0)
        async with measured(network) as (coordinator, published):
            state = await coordinator.measure_now("a step took longer")
            ring = [(worker, (worker + 1) % NUM_WORKERS) for worker in range(NUM_WORKERS)]
            assert [(each.source, each.target) for each in state.measured] == ring
            assert not state.not_measured
            assert not published.value.measured, "that is of the answer alone"
            network.broken.add((1, 2))
            state = await coordinator.measure_now("a step took longer")
            names = [(each.source, each.target) for each in state.measured]
            assert [(each.source, each.target) for each in state.not_measured] == [(1, 2)]
            assert {source for source, _ in names} == {target for _, target in names} == set(range(NUM_WORKERS))

    asyncio.run(scenario())


@pytest.fixture
def steady_interval(monkeypatch):
    """The interval between tests does not grow within a test."""
    monkeypatch.setattr("trimtab_netmon.coordination.probe_schedule.FEWEST_TO_DOUBLE", 10**6)
    monkeypatch.setattr("trimtab_netmon.coordination.probe_schedule.MOST_TO_DOUBLE", 10**6)


@pytest.mark.usefixtures("steady_interval")
def test_a_link_that_cannot_be_tested_takes_no_turns_of_others_and_is_called_stale():
    async def scenario():
        network = MadeUpNetwork(FAST, FAST, 0)
        async with measured(network, probe_interval=0.1, probe_budget=0.5) as (coordinator, published):
            await until(lambda: coordinator.debug_state().num_links_tested == 12)
            network.broken.add((0, 2))
            network.tests.clear()
            await until(lambda: len(network.tests) >= 55)
            turns = [(source, target) for source, target, _ in network.tests]
            assert turns.count((0, 2)) <= 6, "backed off"
            assert len(set(turns)) == 12, "everyone else has had turns"
            await until(lambda: links_of(published.value)[0, 2].bandwidth.stale)
            assert not published.value.summary.stale, "the other links of its hosts speak for them"
            network.broken.clear()
            await until(lambda: not links_of(published.value)[0, 2].bandwidth.stale)

    asyncio.run(scenario())


def test_what_fails_costs_its_hosts():
    async def scenario():
        network = MadeUpNetwork(FAST, FAST, 0)
        async with measured(network, probe_budget=0.02) as (coordinator, _):
            network.broken = {(i, j) for i in range(NUM_WORKERS) for j in range(NUM_WORKERS)}
            before = coordinator.debug_state().missing_from_budget
            await coordinator.measure_now("a step took longer")
            after = coordinator.debug_state().missing_from_budget
            assert all(now > then for (now, _), (then, _) in zip(after, before, strict=True))

    asyncio.run(scenario())


def test_a_latency_that_moved_brings_a_test_of_everyone_or_makes_the_figures_stale():
    async def scenario():
        network = MadeUpNetwork(FAST, SLOW, changes_before_test=NUM_WORKERS)
        async with measured(network) as (coordinator, published):
            network.latency = 0.025
            await until(lambda: published.value.summary.bandwidth_bytes_per_second == SLOW)
            await until(lambda: not coordinator.debug_state().is_sweep_wanted)
            coordinator._budget.spend((0, 1), 1000.0, 1.0, time.monotonic())
            num_tests = len(network.tests)
            assert not published.value.summary.stale
            network.latency = 0.002
            await until(lambda: published.value.summary.stale)
            assert published.value.summary.latency_seconds == pytest.approx(0.002)
            assert len(network.tests) == num_tests

    asyncio.run(scenario())


def test_more_that_arrives_than_links_should_carry_proves_them_wrong():
    async def scenario():
        network = MadeUpNetwork(SLOW, FAST, changes_before_test=NUM_WORKERS)
        async with measured(network) as (_, published):
            await until(lambda: published.value.summary.bandwidth_bytes_per_second == SLOW)
            network.received[2] = 0.9 * FAST
            await until(lambda: published.value.summary.bandwidth_bytes_per_second == FAST)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trimtab_netmon.coordination.link_estimates.EVIDENCE_SPAN", 0.0)
        asyncio.run(scenario())


def test_what_arrives_and_no_test_confirms_is_not_tested_again_and_again():
    """A relay that stood still lets a burst through: no reason to spend the budget."""

    async def scenario():
        network = MadeUpNetwork(SLOW, SLOW, 0)
        async with measured(network) as (coordinator, published):
            network.received[2] = FAST
            await until(lambda: len(network.tests) >= 2 * NUM_WORKERS and not coordinator.debug_state().is_sweep_wanted)
            num_tests, revision = len(network.tests), published.value.revision
            for _ in range(10):
                await coordinator._has_news.wait()
                await asyncio.sleep(0.1)
            assert len(network.tests) == num_tests
            assert not published.value.summary.stale
            assert published.value.revision == revision

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trimtab_netmon.coordination.link_estimates.EVIDENCE_SPAN", 0.0)
        asyncio.run(scenario())


def test_states_are_published_by_a_timer_however_much_comes_in():
    async def scenario():
        network = MadeUpNetwork(FAST, FAST, 0)
        async with measured(network) as (coordinator, _):
            publishings, publish = [], coordinator._publish

            def count():
                publishings.append(time.monotonic())
                publish()

            coordinator._publish = count
            while len(publishings) < 5:
                coordinator._has_news.set()
                await asyncio.sleep(0)
            gaps = [later - sooner for sooner, later in itertools.pairwise(publishings)]
            assert min(gaps) >= 0.09

    asyncio.run(scenario())


def test_a_link_whose_target_is_silent_is_not_tested_and_one_that_never_pauses_is():
    async def scenario():
        network = MadeUpNetwork(FAST, FAST, 0)
        async with measured(network, probe_interval=0.1, probe_budget=0.5) as (coordinator, published):
            await until(lambda: coordinator.debug_state().num_links_tested == 12)
            network.silent, network.unseen = {(0, 2)}, {(0, 3)}
            await until(
                lambda: links_of(published.value)[0, 2].silent and links_of(published.value)[0, 3].latency.stale
            )
            assert links_of(published.value)[0, 2].bandwidth.stale
            assert not links_of(published.value)[0, 3].bandwidth.stale
            assert published.value.summary.stale
            network.tests.clear()
            await until(lambda: len(network.tests) >= 24)
            turns = {(source, target) for source, target, _ in network.tests}
            assert (0, 2) not in turns
            assert (0, 3) in turns

    asyncio.run(scenario())


def test_a_monitor_whose_tests_all_fail_publishes_why_and_that_they_succeed_again():
    async def scenario():
        network = MadeUpNetwork(FAST, FAST, 0)
        async with measured(network, probe_interval=0.1, probe_budget=0.5) as (_, published):
            assert published.value.problem == ""
            network.broken = {(i, j) for i in range(NUM_WORKERS) for j in range(NUM_WORKERS)}
            await until(lambda: published.value.problem)
            assert published.value.problem.endswith("bandwidth tests failed: no data arrived")
            network.broken = set()
            await until(lambda: not published.value.problem)

    asyncio.run(scenario())


def test_periodic_tests_become_rarer_while_they_confirm_and_frequent_again_after_a_change(monkeypatch):
    monkeypatch.setattr("trimtab_netmon.coordination.probe_schedule.FEWEST_TO_DOUBLE", 2)
    monkeypatch.setattr("trimtab_netmon.coordination.probe_schedule.MOST_TO_DOUBLE", 2)

    async def scenario():
        network = MadeUpNetwork(FAST, SLOW, changes_before_test=10**6)
        async with measured(network, probe_interval=0.1, probe_budget=0.5) as (coordinator, _):
            await until(lambda: coordinator.debug_state().interval_seconds >= 0.4)
            network.latency *= 20
            await until(lambda: coordinator.debug_state().interval_seconds == 0.1)

    asyncio.run(scenario())


def test_a_test_costs_the_bytes_that_it_sent():
    async def scenario():
        network = MadeUpNetwork(FAST, FAST, 0)
        async with measured(network) as (coordinator, _):
            return [num_bytes for _, num_bytes in coordinator.debug_state().missing_from_budget]

    assert asyncio.run(scenario()) == pytest.approx([2 * 0.1 * FAST] * NUM_WORKERS, rel=0.01)


def test_a_monitor_that_does_not_answer_is_named_while_it_does_not(monkeypatch):
    async def scenario():
        network, watch_links = MadeUpNetwork(FAST, FAST, 0), MadeUpPeer.WatchLinks
        is_away = False

        async def watch_or_fail(peer, request):
            async for table in watch_links(peer, request):
                if is_away and peer.worker == 2:
                    nothing = grpc.aio.Metadata()
                    raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "connection refused")
                yield table

        monkeypatch.setattr(MadeUpPeer, "WatchLinks", watch_or_fail)
        async with measured(network) as (_, published):
            assert published.value.problem == ""
            is_away = True
            await until(lambda: published.value.problem)
            assert published.value.problem == "the monitor of worker 2 does not answer: connection refused"
            is_away = False
            await until(lambda: not published.value.problem)

    monkeypatch.setattr("trimtab_netmon.coordination.coordinator.ABSENT_AFTER", 0.1)
    asyncio.run(scenario())
