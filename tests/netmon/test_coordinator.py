"""Rounds of bandwidth tests while the network changes in the midst of them; the tests' answers are made up."""

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from trimtab_api.netmon.v1 import netmon_pb2
from trimtab_netmon import wire
from trimtab_netmon.coordinator import Coordinator, NotNowError, StoppingError
from trimtab_netmon.figures import Figure, LinkState, Method
from trimtab_netmon.latest import Latest
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

    def peer(self, worker):
        return MadeUpPeer(self, worker)


@dataclass
class MadeUpPeer:
    network: MadeUpNetwork
    worker: int

    async def WatchLinks(self, request):  # noqa: N802 - as in the contract
        while True:
            links = [
                LinkState(self.worker, target, Figure(self.network.latency, Method.UDP_ECHO, time.time()))
                for target in range(NUM_WORKERS)
                if target != self.worker
            ]
            yield netmon_pb2.LinkTable(source=self.worker, links=[wire.link_to_wire(each) for each in links])
            await asyncio.sleep(0.05)

    async def TestBandwidth(self, request, timeout):  # noqa: N802 - as in the contract
        network = self.network
        network.tests.append((self.worker, request.target, request.expected_bytes_per_second))
        has_changed = len(network.tests) > network.changes_before_test
        await asyncio.sleep(0.02)
        return netmon_pb2.TestBandwidthResponse(
            bandwidth_bytes_per_second=network.after if has_changed else network.before,
            method=Method.IPERF3.value,
            duration_seconds=0.1,
        )


@asynccontextmanager
async def measured(network, probe_interval=60.0, probe_budget=0.1):
    """A coordinator of this network whose first round is over, and what it publishes."""
    peers = tuple(Endpoint("127.0.0.1", 9000 + 2 * worker) for worker in range(NUM_WORKERS))
    settings = Settings(0, peers, peers[0], "lo", probe_interval, probe_budget, metrics_port=0)
    published = Latest(netmon_pb2.NetworkState(num_workers=NUM_WORKERS))
    coordinator = Coordinator(settings, network, published, Metrics())
    running = asyncio.create_task(coordinator.run())
    try:
        async with asyncio.timeout(20):
            while len(network.tests) < NUM_WORKERS or coordinator._wanted is not None:
                await asyncio.sleep(0.02)
            yield coordinator, published
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("before_test", [4, 5, 6])
@pytest.mark.parametrize(("before", "after"), [(SLOW, FAST), (FAST, SLOW)])
def test_the_round_in_which_the_network_changes_ends_with_what_it_carries_now(before, after, before_test):
    """Tests 0 to 3 are the first round, 4 and 5 the next one's first wave. No routine test comes to its help."""

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
        async with measured(MadeUpNetwork(FAST, FAST, 0), probe_interval=0.2, probe_budget=0.5) as (coordinator, _):
            while len(coordinator._tested_at) <= NUM_WORKERS:
                await asyncio.sleep(0.02)
            return network.tests, coordinator._peers.tests

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
                except NotNowError as error:
                    refusals.append(str(error))
            assert refusals == ["a routine test has just slowed a link: ask again if it stays slow"]
            num_tests = len(network.tests)
            while True:
                try:
                    state = await coordinator.measure_now("it is slow still")
                    break
                except NotNowError:
                    await asyncio.sleep(0.01)
            assert len(network.tests) >= num_tests + NUM_WORKERS
            assert state.summary.bandwidth_bytes_per_second == pytest.approx(FAST)

    asyncio.run(scenario())


def test_who_waits_for_a_measurement_hears_that_the_monitor_stops():
    async def scenario():
        async with measured(MadeUpNetwork(FAST, FAST, 0)) as (coordinator, _):
            waiting = asyncio.create_task(coordinator.measure_now("a step took longer"))
            while coordinator._wanted is None:
                await asyncio.sleep(0)
        coordinator.close()
        await waiting

    with pytest.raises(StoppingError):
        asyncio.run(scenario())
