"""How often monitors ask DNS for each other, and whom they find by it. The resolver and the clock are made up."""

import asyncio
import socket
from collections import Counter
from contextlib import AsyncExitStack

import grpc
import pytest
from trimtab_api.rpc.addresses import absolute_name
from trimtab_netmon.peers import addresses as peer_addresses
from trimtab_netmon.peers.addresses import PeerAddresses
from trimtab_netmon.peers.channels import Peers
from trimtab_netmon.probing.interface import InterfaceWatch
from trimtab_netmon.probing.udp_echo import Echo
from trimtab_netmon.settings import Endpoint

WORKERS, PRESENT = 32, 16
SERVICE = "digits.team.svc"
ENDPOINTS = tuple(Endpoint(f"digits-{worker}.{SERVICE}", 29400) for worker in range(WORKERS))


class Resolver:
    """Knows the pods that run, and counts what it is asked."""

    def __init__(self, running):
        self.names = {ENDPOINTS[worker].host: [f"10.0.0.{worker}"] for worker in running}
        self.asked = Counter()

    async def __call__(self, name):
        self.asked[name] += 1
        found = [ip for ips in self.names.values() for ip in ips] if name == SERVICE else self.names.get(name)
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return found


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def watch_for(minutes, service, resolver):
    """Worker 0's lookups while the running monitors answer and the others are absent."""
    clock = Clock()
    addresses = PeerAddresses(0, ENDPOINTS, Endpoint("10.0.0.0", 29400), service, resolver, clock)

    async def scenario():
        for tick in range(round(minutes * 60 / 0.5)):
            clock.now = 0.5 * tick
            await addresses.look_up_due()
            for worker in range(1, PRESENT):
                addresses.suggest(worker, f"10.0.0.{worker}")
                addresses.confirm(worker)

    asyncio.run(scenario())
    return addresses


def test_half_of_32_pods_pending_cost_each_monitor_few_lookups_of_the_service():
    resolver = Resolver(range(PRESENT))
    watch_for(5, SERVICE, resolver)
    assert set(resolver.asked) == {SERVICE}
    assert resolver.asked[SERVICE] <= 5 * 2.5 + 7, "delays double up to 30 s"


def test_without_a_service_an_absent_peer_costs_few_lookups():
    resolver = Resolver(range(PRESENT))
    watch_for(5, None, resolver)
    absent = {ENDPOINTS[worker].host for worker in range(PRESENT, WORKERS)}
    assert max(resolver.asked[name] for name in absent) <= 5 * 2.5 + 7
    assert max(resolver.asked[name] for name in set(resolver.asked) - absent) <= 1


def test_lookups_of_absent_peers_do_not_come_all_at_once():
    resolver = Resolver(())
    clock, moments = Clock(), Counter()
    addresses = PeerAddresses(0, ENDPOINTS, Endpoint("10.0.0.0", 29400), None, resolver, clock)

    async def scenario():
        for tick in range(120, 400):
            before = resolver.asked.total()
            clock.now = 0.5 * tick
            await addresses.look_up_due()
            moments[tick] = resolver.asked.total() - before

    asyncio.run(scenario())
    assert max(count for tick, count in moments.items() if tick > 200) < WORKERS / 2


def test_a_peer_that_comes_back_elsewhere_is_found_again():
    resolver = Resolver(range(PRESENT))
    addresses = watch_for(1, None, resolver)
    clock = addresses._clock
    resolver.names[ENDPOINTS[1].host] = ["10.0.1.1"]

    async def scenario():
        while addresses.address(1) != "10.0.1.1":
            clock.now += 0.1
            await addresses.look_up_due()

    begun = clock.now
    asyncio.run(scenario())
    assert clock.now - begun < peer_addresses.LOOK_UP_AFTER + 2


def test_addresses_of_the_service_that_nobody_has_are_to_be_identified():
    addresses = watch_for(1, SERVICE, Resolver([*range(PRESENT), 20]))
    assert addresses.unclaimed == [("10.0.0.20", 29400)]
    addresses.suggest(20, "10.0.0.20")
    assert addresses.unclaimed == []
    assert addresses.endpoint(20) == ("10.0.0.20", 29400)


def test_a_suggestion_does_not_move_a_peer_that_answers():
    addresses = watch_for(1, SERVICE, Resolver(range(PRESENT)))
    addresses.suggest(1, "10.9.9.9")
    assert addresses.address(1) == "10.0.0.1"


def test_a_call_to_a_monitor_without_an_address_fails_as_unavailable_and_asks_no_resolver():
    addresses = PeerAddresses(0, ENDPOINTS, Endpoint("10.0.0.0", 29400), SERVICE, Resolver(()))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        Peers(ENDPOINTS, addresses).peer(3)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "digits-3.digits.team.svc" in caught.value.details()


def test_a_channel_goes_to_the_address_and_checks_the_name(monkeypatch):
    opened = []
    monkeypatch.setattr(
        "trimtab_netmon.peers.channels.open_async_channel",
        lambda target, server_name: opened.append((target, server_name)),
    )
    monkeypatch.setattr("trimtab_netmon.peers.channels.netmon_pb2_grpc.MonitorPeerStub", lambda channel: channel)
    addresses = PeerAddresses(0, ENDPOINTS, Endpoint("10.0.0.0", 29400), SERVICE, Resolver(()))
    addresses.suggest(3, "10.0.0.3")
    Peers(ENDPOINTS, addresses).peer(3)
    assert opened == [("10.0.0.3:29400", "digits-3.digits.team.svc")]


def test_a_monitor_that_moved_is_called_at_its_new_address_and_calls_to_the_old_one_are_not_cancelled(monkeypatch):
    """A cancelled call would end the task that reads from it."""
    closed = []

    class Channel:
        def __init__(self, target, server_name):
            self.target = target

        async def close(self, grace):
            closed.append(self.target)

    monkeypatch.setattr("trimtab_netmon.peers.channels.open_async_channel", Channel)
    monkeypatch.setattr("trimtab_netmon.peers.channels.netmon_pb2_grpc.MonitorPeerStub", lambda channel: channel.target)
    addresses = PeerAddresses(0, ENDPOINTS, Endpoint("10.0.0.0", 29400), SERVICE, Resolver(()))
    peers = Peers(ENDPOINTS, addresses)

    async def scenario():
        for address in ("10.0.0.3", "10.0.0.3", "10.0.1.3"):
            addresses.suggest(3, address)
            assert peers.peer(3) == f"{address}:29400"
        assert closed == []
        await peers.close()

    asyncio.run(scenario())
    assert sorted(closed) == ["10.0.0.3:29400", "10.0.1.3:29400"]


def test_monitors_of_a_service_find_each_other_by_one_name(monkeypatch):
    """Real echoes on three loopback addresses: the Service's name is all that is ever looked up."""
    monkeypatch.setattr("trimtab_netmon.probing.udp_echo.IDENTIFY_INTERVAL", 0.05)
    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hosts = [f"127.77.0.{worker + 1}" for worker in range(3)]
    endpoints = tuple(Endpoint(f"a-{worker}.a.b.svc", port) for worker in range(3))
    asked, taken = Counter(), {worker: set() for worker in range(3)}

    async def lookup(name):
        asked[name] += 1
        return hosts

    class Uncounted:
        def count_request(self, worker):
            pass

        count_unanswered = count_request

    async def scenario():
        running = []
        async with AsyncExitStack() as stack, asyncio.timeout(20):
            for worker in range(3):
                listen = Endpoint(hosts[worker], port)
                addresses = PeerAddresses(worker, endpoints, listen, "a.b.svc", lookup)
                echo = Echo(
                    *(worker, 3, listen, addresses, b"key", InterfaceWatch("lo"), Uncounted()),
                    on_round_trip=lambda other, _, worker=worker: taken[worker].add(other),
                    is_suspect=lambda _: False,
                    capacity_to=lambda _: 0.0,
                )
                for part in (addresses.run(), echo.run()):
                    task = asyncio.create_task(part)
                    running.append(task)
                    stack.callback(task.cancel)
            while any(len(others) < 2 for others in taken.values()):
                await asyncio.sleep(0.01)
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(scenario())
    assert set(asked) == {"a.b.svc"}


@pytest.mark.parametrize(
    ("text", "host", "expected"),
    [
        ("search t.svc.cluster.local svc.cluster.local cluster.local\n", "a.t.svc", "a.t.svc.cluster.local."),
        ("search t.svc.k8s.example. svc.k8s.example.\n", "a.t.svc", "a.t.svc.k8s.example."),
        ("search t.svc.cluster.local svc.cluster.local\n", "node-1", "node-1"),
        ("nameserver 10.0.0.1\n", "a.t.svc", "a.t.svc"),
        ("search example.com\n", "a.t.svc", "a.t.svc"),
    ],
)
def test_a_service_name_is_absolute_where_the_search_list_tells_the_clusters_domain(tmp_path, text, host, expected):
    (tmp_path / "resolv.conf").write_text(text)
    assert absolute_name(host, tmp_path / "resolv.conf") == expected


def test_a_name_stays_as_it_is_without_a_resolv_conf(tmp_path):
    assert absolute_name("a.t.svc", tmp_path / "none") == "a.t.svc"
