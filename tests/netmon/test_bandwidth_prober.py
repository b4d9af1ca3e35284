"""A test that this host cannot make is a failed test, whatever the operating system refuses."""

import asyncio

import pytest
from trimtab_netmon.links.measurements import Method
from trimtab_netmon.peers.addresses import PeerAddresses
from trimtab_netmon.peers.channels import Peers
from trimtab_netmon.probing import bandwidth_prober as tester
from trimtab_netmon.probing import engines, iperf
from trimtab_netmon.probing.bandwidth import Rates
from trimtab_netmon.probing.engines import Engine
from trimtab_netmon.probing.interface import InterfaceWatch
from trimtab_netmon.settings import Endpoint, Settings


def refuse(*arguments, **options):
    raise FileNotFoundError(2, "No such file or directory", "/proc/missing")


def one_host(probe="auto"):
    peers = (Endpoint("127.0.0.1", 9400), Endpoint("127.0.0.1", 9402))
    settings = Settings(0, peers, peers[0], "lo", probe_interval=2.0, probe_budget=0.02, metrics_port=0, probe=probe)
    channels = Peers(peers, PeerAddresses(0, peers, peers[0]))
    return tester.Tester(settings, InterfaceWatch("lo"), channels, latency_to=lambda worker: 0.001)


def test_an_os_error_of_the_sender_is_a_failed_test(monkeypatch):
    monkeypatch.setattr(iperf, "largest_window", refuse)
    with pytest.raises(engines.TestError, match=r"worker 0 cannot test: .*/proc/missing"):
        asyncio.run(one_host().send(1, expected=1e6))


def test_an_error_without_words_is_told_by_its_name(monkeypatch):
    def refuse_without_words(*arguments):
        raise ProcessLookupError

    monkeypatch.setattr(iperf, "largest_window", refuse_without_words)
    with pytest.raises(engines.TestError, match="worker 0 cannot test: ProcessLookupError"):
        asyncio.run(one_host().send(1, expected=1e6))


def test_an_os_error_of_the_receiver_is_a_failed_test(monkeypatch):
    monkeypatch.setattr(iperf.IperfServer, "start", refuse)

    async def receive():
        async for _ in one_host().receive(1, 1.0, [Engine.IPERF3]):
            pass

    with pytest.raises(engines.TestError, match=r"worker 0 cannot receive a test: .*/proc/missing"):
        asyncio.run(receive())


@pytest.mark.parametrize(
    ("probe", "found", "used"),
    [
        ("auto", 0.5 * engines.MOST_OF_IPERF3, [Engine.IPERF3]),
        ("auto", 1.1 * engines.MOST_OF_IPERF3, [Engine.IPERF3, Engine.NATIVE]),
        ("iperf3", 1.1 * engines.MOST_OF_IPERF3, [Engine.IPERF3]),
    ],
)
def test_what_iperf3_finds_above_10_gbit_is_tested_again_by_the_native_engine(monkeypatch, probe, found, used):
    """Two tests of 0.4 s and so many bytes cost their sum."""
    monkeypatch.setattr(engines, "has_iperf3", lambda: True)
    host, sent = one_host(probe), []

    async def send(target, expected, window):
        sent.append(engines.engines_for(probe, expected)[0])
        rates = Rates(received=found * len(sent), own=found * len(sent), sent_before=0.0)
        return tester.Sent(rates, 0.4, 1000, sent[-1])

    monkeypatch.setattr(host, "_send", send)
    result = asyncio.run(host.send(1, expected=0.0))
    assert sent == used
    assert result.bandwidth == found * len(used)
    assert result.method is (Method.NATIVE if used[-1] is Engine.NATIVE else Method.IPERF3)
    assert (result.duration, result.num_bytes) == (pytest.approx(0.4 * len(used)), 1000 * len(used))


def test_a_host_whose_test_failed_is_free_for_the_next_one(monkeypatch):
    monkeypatch.setattr(iperf, "largest_window", refuse)
    host = one_host()
    for _ in range(2):
        with pytest.raises(engines.TestError):
            asyncio.run(host.send(1, expected=1e6))


class IdleReceiver:
    """Receives nothing, and knows whether it was ended."""

    port, ticket, is_over, num_bytes, busiest_thread_seconds = 9, b"", False, 0, 0.0
    was_stopped = False

    def require_good(self):
        pass

    async def stop(self):
        self.was_stopped = True


def test_what_receives_a_test_ends_when_its_sender_gives_up(monkeypatch):
    receiver = IdleReceiver()

    async def start(*_):
        return receiver

    async def give_up():
        host = one_host()
        updates = host.receive(1, 1.0, [Engine.IPERF3])
        assert (await anext(updates)).port == receiver.port
        await updates.aclose()
        assert receiver.was_stopped
        await anext(host.receive(1, 1.0, [Engine.IPERF3]))  # the host is free again

    monkeypatch.setattr(iperf.IperfServer, "start", start)
    asyncio.run(give_up())


@pytest.mark.parametrize(
    ("notes", "busy"),
    [
        ([(10.0, 2.0), (10.2, 2.19), (10.4, 2.39)], True),
        ([(10.0, 2.0), (10.2, 2.10), (10.4, 2.20)], False),
        ([(10.0, 2.0), (10.2, 2.20)], False),  # too short to tell
        ([(10.0, 2.0), (10.4, 2.39), (10.5, 0.0)], True),  # it has ended
        ([(10.0, 0.0), (10.4, 0.0)], False),  # not counted
        ([], False),
    ],
)
def test_a_thread_is_always_busy_if_it_was_on_a_processor_nearly_all_of_the_time(notes, busy):
    thread = tester.BusyThread()
    for at, seconds in notes:
        thread.record(at, seconds)
    assert thread.was_always_busy is busy


def test_a_link_that_keeps_iperf3_busy_is_tested_by_the_native_engine_from_then_on(monkeypatch):
    monkeypatch.setattr(engines, "has_iperf3", lambda: True)
    host, used = one_host(), []

    async def send(target, expected, window):
        engine = engines.engines_for("auto", expected, has_outrun_iperf3=target in host.outrun_by)[0]
        used.append(engine)
        rate = 6e8 if engine is Engine.IPERF3 else 8e8
        return tester.Sent(Rates(rate, rate, sent_before=0.0), 0.4, 1000, engine, engine is Engine.IPERF3)

    monkeypatch.setattr(host, "_send", send)
    found = asyncio.run(host.send(1, expected=0.0)), asyncio.run(host.send(1, expected=0.0))
    assert [each.bandwidth for each in found] == [8e8, 8e8]
    assert used == [Engine.IPERF3, Engine.NATIVE, Engine.NATIVE]


class SpoiledReceiver:
    """What is left of an iperf3 server after a stranger has come first: it is over, and without data."""

    port, ticket, num_bytes, busiest_thread_seconds = 5001, b"", 0, 0.0

    def __init__(self, problem=None):
        self.problem = problem

    @property
    def is_over(self):
        return self.problem is None

    def require_good(self):
        if self.problem:
            raise self.problem

    async def stop(self):
        pass


async def engine_told(host, engines_offered=(Engine.IPERF3, Engine.NATIVE)):
    """The engine that a host receives its next test by."""
    updates = host.receive(1, 1.0, engines_offered)
    try:
        return Engine((await anext(updates)).engine)
    finally:
        await updates.aclose()


@pytest.mark.parametrize(
    ("problem", "then"),
    [
        (engines.SpoiledError("10.0.0.9 connected to the test's port"), Engine.NATIVE),
        (engines.SpoiledError("iperf3 ended by signal 11"), Engine.NATIVE),
        (None, Engine.NATIVE),  # the stranger has left already
        (engines.TestError("iperf3 ended with code 1"), Engine.IPERF3),
    ],
)
def test_once_a_stranger_has_spoiled_iperf3_a_host_receives_by_the_native_engine(monkeypatch, caplog, problem, then):
    start = iperf.IperfServer.start

    async def scenario():
        host = one_host()
        monkeypatch.setattr(iperf.IperfServer, "start", lambda listen, peer: asyncio.sleep(0, SpoiledReceiver(problem)))
        with pytest.raises(engines.TestError):
            async for _ in host.receive(1, 1.0, [Engine.IPERF3, Engine.NATIVE]):
                pass
        monkeypatch.setattr(iperf.IperfServer, "start", start)
        assert await engine_told(host, [Engine.IPERF3]) is Engine.IPERF3, "a job that wants iperf3 alone gets it"
        return await engine_told(host)

    assert asyncio.run(scenario()) is then
    assert any("receives tests by the native engine" in each for each in caplog.messages) is (then is Engine.NATIVE)
