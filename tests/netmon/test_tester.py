"""A test that this host cannot make is a failed test, whatever the operating system refuses."""

import asyncio

import pytest
from trimtab_netmon import engines, iperf, tester
from trimtab_netmon.engines import Engine
from trimtab_netmon.interface import InterfaceWatch
from trimtab_netmon.peer_addresses import PeerAddresses
from trimtab_netmon.peers import Peers
from trimtab_netmon.settings import Endpoint, Settings


def refuse(*arguments, **options):
    raise FileNotFoundError(2, "No such file or directory", "/proc/missing")


def one_host():
    peers = (Endpoint("127.0.0.1", 9400), Endpoint("127.0.0.1", 9402))
    settings = Settings(0, peers, peers[0], "lo", probe_interval=2.0, probe_budget=0.02, metrics_port=0)
    channels = Peers(peers, PeerAddresses(0, peers, peers[0]))
    return tester.Tester(settings, InterfaceWatch("lo"), channels, latency_to=lambda worker: 0.001)


def test_an_os_error_of_the_sender_is_a_failed_test(monkeypatch):
    monkeypatch.setattr(iperf, "largest_window", refuse)
    with pytest.raises(engines.TestError, match=r"worker 0 cannot test: .*/proc/missing"):
        asyncio.run(one_host().send(1, expected=1e6))


def test_an_os_error_of_the_receiver_is_a_failed_test(monkeypatch):
    monkeypatch.setattr(iperf.IperfServer, "start", refuse)

    async def receive():
        async for _ in one_host().receive(1, 1.0, [Engine.IPERF3]):
            pass

    with pytest.raises(engines.TestError, match=r"worker 0 cannot receive a test: .*/proc/missing"):
        asyncio.run(receive())
