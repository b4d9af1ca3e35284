"""As many workers as a job may have: their monitors' real services over gRPC, in one process; latencies are made up."""

import asyncio
import random
import time
from contextlib import asynccontextmanager

import grpc
import pytest
from trimtab.launch.environment.ports import free_ports
from trimtab_api.errors import UserError
from trimtab_api.names import MOST_WORKERS
from trimtab_api.netmon.v1 import netmon_pb2, netmon_pb2_grpc
from trimtab_api.rpc.channels import MAX_MESSAGE_BYTES, SERVER_OPTIONS, listen
from trimtab_netmon.coordination.coordinator import Coordinator, ProbeDeferredError
from trimtab_netmon.links import converters
from trimtab_netmon.links.broadcast import Broadcast
from trimtab_netmon.links.delta_encoding import StateReader
from trimtab_netmon.links.measurements import LinkState, Measurement, Method, Summary
from trimtab_netmon.metrics import Metrics
from trimtab_netmon.peers.addresses import PeerAddresses
from trimtab_netmon.peers.channels import Peers
from trimtab_netmon.probing import bandwidth_prober as tester
from trimtab_netmon.server.services import MonitorPeer, NetworkMonitor
from trimtab_netmon.settings import Endpoint, Settings

FAST = 125e6
TABLES_A_SECOND = 5
"""As many as a monitor sends at most: some latency moves all the time."""


class MadeUpTester:
    async def send(self, target, expected):
        return tester.TestResult(FAST, Method.IPERF3, 0.3, is_lower_bound=False, num_bytes=1)


def table(worker, latency, noise):
    links = [
        LinkState(worker, target, Measurement(latency + noise.uniform(0, 4e-4), Method.UDP_ECHO, 1.7e9, age=0.1))
        for target in range(MOST_WORKERS)
        if target != worker
    ]
    return netmon_pb2.LinkTable(source=worker, links=[converters.link_to_proto(each) for each in links])


@asynccontextmanager
async def whole_job():
    """Every worker's services, worker 0's coordinator among them, and the newest state that each follower has."""
    ports = free_ports(MOST_WORKERS)
    endpoints = tuple(Endpoint("127.0.0.1", port) for port in ports)
    settings = Settings(0, endpoints, endpoints[0], "lo", 2.0, 0.1, metrics_port=0)
    peers, published = (
        Peers(endpoints, PeerAddresses(0, endpoints, endpoints[0])),
        Broadcast(netmon_pb2.NetworkState()),
    )
    coordinator = Coordinator(settings, peers, published, Metrics())
    tables = [Broadcast(netmon_pb2.LinkTable(source=worker)) for worker in range(MOST_WORKERS)]
    latency, states, servers = [0.002], {}, []
    for worker, endpoint in enumerate(endpoints):
        server = grpc.aio.server(options=SERVER_OPTIONS)
        peer = MonitorPeer(tables[worker], MadeUpTester(), MOST_WORKERS)
        netmon_pb2_grpc.add_MonitorPeerServicer_to_server(peer, server)
        if worker == 0:
            monitor = NetworkMonitor(published, coordinator, peers)
            netmon_pb2_grpc.add_NetworkMonitorServicer_to_server(monitor, server)
        listen(server, str(endpoint))
        await server.start()
        servers.append(server)

    async def tell(worker):
        noise = random.Random(worker)
        while True:
            tables[worker].publish(table(worker, latency[0], noise))
            await asyncio.sleep(1 / TABLES_A_SECOND)

    async def follow(worker):
        followers, reader = Peers(endpoints, PeerAddresses(0, endpoints, endpoints[0])), StateReader()
        request = netmon_pb2.WatchNetworkStateRequest(accepts_partial=True)
        try:
            async for message in followers.monitor(0).WatchNetworkState(request):
                states[worker] = reader.merge(message)
        finally:
            await followers.close()

    tasks = [asyncio.create_task(coordinator.run())]
    tasks += [asyncio.create_task(part(worker)) for worker in range(MOST_WORKERS) for part in (tell, follow)]
    try:
        async with asyncio.timeout(240):
            yield coordinator, states, latency
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await peers.close()
        await asyncio.gather(*(server.stop(None) for server in servers))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.05)


async def measured_now(coordinator):
    """Measure now, and ask again while a periodic probe has just slowed a link, as one may on a busy machine."""
    while True:
        try:
            return await coordinator.measure_now("a test asks")
        except ProbeDeferredError as refusal:
            if "a periodic probe has just slowed a link" not in str(refusal):
                raise
            await asyncio.sleep(0.5)


@pytest.mark.timeout(300)
def test_every_worker_sees_the_network_of_the_largest_job_and_its_changes():
    async def scenario():
        async with whole_job() as (coordinator, states, latency):
            await until(lambda: len(states) == MOST_WORKERS and not any(s.summary.stale for s in states.values()))
            assert {s.summary.bandwidth_bytes_per_second for s in states.values()} == {FAST}
            answer = await measured_now(coordinator)
            assert (len(answer.measured), len(answer.not_measured)) == (MOST_WORKERS, 0)
            latency[0] = 0.025
            await until(lambda: all(0.02 < s.summary.latency_seconds < 0.03 for s in states.values()))
            assert all(len(s.links) == MOST_WORKERS * (MOST_WORKERS - 1) for s in states.values())

    asyncio.run(scenario())


def largest_state(num_workers):
    measurement = Measurement(
        123456789.123, Method.IPERF3_SHARED, time.time(), stale=True, age=1234.5, is_lower_bound=True
    )
    links = [
        LinkState(source, target, measurement, measurement, 0.123456, 0.123456)
        for source in range(num_workers)
        for target in range(num_workers)
        if target != source
    ]
    summary = Summary(1.5, 1.5, 1.5, True, 1.5, 1.5, Method.IPERF3_SHARED, True)
    return converters.state_to_proto(2**63, time.time(), num_workers, links, summary)


def test_the_state_of_the_largest_job_is_far_from_the_largest_message():
    assert largest_state(MOST_WORKERS).ByteSize() < MAX_MESSAGE_BYTES / 20
    assert largest_state(250).ByteSize() > MAX_MESSAGE_BYTES, "as it was found: nobody would see a network"


def test_a_monitor_of_more_workers_refuses_and_says_why():
    endpoints = tuple(Endpoint("127.0.0.1", 2000 + 2 * worker) for worker in range(MOST_WORKERS + 1))
    with pytest.raises(UserError, match=r"--peers: '33 names': must name at most 32 monitors: they measure every pair"):
        Settings(0, endpoints, endpoints[0], "lo", 2.0, 0.02, metrics_port=0)
