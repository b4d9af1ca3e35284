"""What sends and receives a bandwidth test: real iperf3, and the monitor's own threads, on loopback."""

import asyncio
import os
import signal
import socket

import psutil
import pytest
from trimtab_netmon.probing import engines
from trimtab_netmon.probing.engines import MOST_OF_IPERF3, NUM_STREAMS, Engine, choose, engines_for
from trimtab_netmon.probing.iperf import IperfClient, IperfServer
from trimtab_netmon.probing.native import NativeReceiver, NativeSender
from trimtab_netmon.probing.probe_handshake import AuthenticationError, draw_ticket, initiate, respond, run_handshake
from trimtab_netmon.probing.proc_files import connected_to
from trimtab_netmon.settings import Endpoint

HERE = "127.0.0.1"
ELSEWHERE = "127.0.0.9"


async def until(condition):
    """Wait; `run` has set a deadline."""
    while not condition():
        await asyncio.sleep(0.01)


def run(scenario):
    async def limited():
        async with asyncio.timeout(30):
            return await scenario()

    return asyncio.run(limited())


def there_is(iperf3, monkeypatch):
    monkeypatch.setattr(engines, "has_iperf3", lambda: iperf3)


@pytest.mark.parametrize(
    ("probe", "expected", "iperf3", "first"),
    [
        ("auto", 0.0, True, Engine.IPERF3),
        ("auto", MOST_OF_IPERF3, True, Engine.IPERF3),
        ("auto", 1.01 * MOST_OF_IPERF3, True, Engine.NATIVE),
        ("auto", 0.0, False, Engine.NATIVE),
        ("native", 0.0, True, Engine.NATIVE),
        ("iperf3", 2 * MOST_OF_IPERF3, True, Engine.IPERF3),
    ],
)
def test_a_test_uses_the_engine_that_suits_the_link_and_the_host(monkeypatch, probe, expected, iperf3, first):
    there_is(iperf3, monkeypatch)
    assert engines_for(probe, expected)[0] is first


def test_a_link_that_outran_iperf3_is_tested_by_the_native_engine_unless_the_job_wants_iperf3(monkeypatch):
    there_is(True, monkeypatch)
    assert engines_for("auto", 0.0, has_outrun_iperf3=True) == [Engine.NATIVE]
    assert engines_for("iperf3", 0.0, has_outrun_iperf3=True) == [Engine.IPERF3]


def test_a_receiver_without_iperf3_uses_the_native_engine_or_says_what_to_do(monkeypatch):
    there_is(False, monkeypatch)
    assert choose([Engine.IPERF3, Engine.NATIVE]) is Engine.NATIVE
    with pytest.raises(
        engines.TestError, match=r"iperf3 is not installed here; install it, or set spec\.network\.probe to auto"
    ):
        choose([Engine.IPERF3])


@pytest.mark.parametrize("window", [None, 1 << 16])
def test_native_ends_move_data_until_they_are_stopped(window):
    async def scenario():
        receiver = NativeReceiver(HERE, HERE, limit=20)
        sender = NativeSender(Endpoint(HERE, receiver.port), HERE, receiver.ticket, 20, window)
        await until(lambda: receiver.num_bytes > 10_000_000)
        assert not sender.is_over
        assert sender.failure == ""
        assert await sender.stop() == ""
        await until(lambda: receiver.is_over)
        receiver.require_good()
        await receiver.stop()

    run(scenario)


def test_a_native_receiver_listens_only_until_the_sender_is_connected():
    async def scenario():
        receiver = NativeReceiver(HERE, HERE, limit=20)
        sender = NativeSender(Endpoint(HERE, receiver.port), HERE, receiver.ticket, 20, None)
        await until(lambda: receiver.num_bytes > 0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HERE, receiver.port)).close()
        await sender.stop()
        await receiver.stop()

    run(scenario)


def test_strangers_neither_reach_a_native_receiver_nor_keep_the_sender_away():
    async def scenario():
        receiver = NativeReceiver(HERE, HERE, limit=20)
        elsewhere = socket.create_connection((HERE, receiver.port), source_address=(ELSEWHERE, 0))
        wrong_ticket = NativeSender(Endpoint(HERE, receiver.port), HERE, b"guessed", 20, None)
        await until(lambda: wrong_ticket.is_over)
        assert "does not know the test's ticket" in wrong_ticket.failure
        with socket.create_connection((HERE, receiver.port)) as garbage:
            garbage.sendall(b"\0" * 4096)
        sender = NativeSender(Endpoint(HERE, receiver.port), HERE, receiver.ticket, 20, None)
        await until(lambda: receiver.num_bytes > 1_000_000)
        elsewhere.settimeout(5)
        assert elsewhere.recv(1) == b"", "closed without a word"
        elsewhere.close()
        await sender.stop()
        await receiver.stop()

    run(scenario)


def test_a_native_receiver_whose_sender_does_not_come_is_a_failed_test():
    async def scenario():
        receiver = NativeReceiver(HERE, HERE, limit=0.1)
        await until(lambda: receiver.is_over)
        with pytest.raises(engines.TestError, match="native test: the sender did not connect"):
            receiver.require_good()
        await receiver.stop()

    run(scenario)


def test_a_native_sender_that_reaches_nobody_is_a_failed_test():
    async def scenario():
        with socket.create_server((HERE, 0)) as closed:
            port = closed.getsockname()[1]
        sender = NativeSender(Endpoint(HERE, port), HERE, b"ticket", 20, None)
        await until(lambda: sender.is_over)
        assert "refused" in sender.failure
        await sender.stop()

    run(scenario)


@pytest.mark.parametrize(("mine", "theirs", "is_good"), [("a", "a", True), ("a", "b", False)])
def test_both_ends_of_a_handshake_check_the_ticket(mine, theirs, is_good):
    ours, others = socket.socketpair()

    async def scenario():
        ends = (ours, initiate(mine.encode())), (others, respond(theirs.encode()))
        for end, _ in ends:
            end.settimeout(5)

        def run_end(end, steps):
            try:
                run_handshake(end, steps)
            finally:
                end.close()

        return await asyncio.gather(*(asyncio.to_thread(run_end, *each) for each in ends), return_exceptions=True)

    results = run(scenario)
    assert [result is None for result in results] == [is_good] * 2
    assert is_good or isinstance(results[0], AuthenticationError)


def test_tickets_differ():
    assert draw_ticket() != draw_ticket()


def test_iperf3_listens_at_a_random_port_for_one_test():
    async def scenario():
        ports = set()
        for _ in range(3):
            server = await IperfServer.start(HERE, HERE)
            ports.add(server.port)
            await server.stop()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HERE, server.port)).close()
        return ports

    assert len(run(scenario)) > 1


def test_iperf3_ends_move_data_until_they_are_stopped():
    async def scenario():
        server = await IperfServer.start(HERE, HERE)
        client = await IperfClient.start(Endpoint(HERE, server.port), HERE, 20, None)
        await until(lambda: server.num_bytes > 10_000_000)
        server.require_good()
        assert connected_to(server.port) == {HERE}
        assert client.failure == ""
        assert await client.stop() == ""
        await server.stop()

    run(scenario)


def test_the_busiest_thread_of_iperf3_is_counted_at_both_ends():
    """On loopback nothing but a processor limits it."""

    async def scenario():
        server = await IperfServer.start(HERE, HERE)
        client = await IperfClient.start(Endpoint(HERE, server.port), HERE, 20, None)
        await until(lambda: server.busiest_thread_seconds > 0.1 and client.busiest_thread_seconds > 0.1)
        await client.stop()
        await server.stop()
        assert server.busiest_thread_seconds == 0.0, "it has ended"

    run(scenario)


def test_a_stranger_at_iperf3s_port_fails_the_test_and_is_named():
    async def scenario():
        server = await IperfServer.start(HERE, HERE)
        with socket.create_connection((HERE, server.port), source_address=(ELSEWHERE, 0)):
            with pytest.raises(
                engines.TestError, match=rf"{ELSEWHERE} connected to the test's port, which is for {HERE} alone"
            ):
                server.require_good()
        await server.stop()

    run(scenario)


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGKILL])
def test_the_death_of_iperf3_is_a_failed_test(how):
    async def scenario():
        server = await IperfServer.start(HERE, HERE)
        client = await IperfClient.start(Endpoint(HERE, server.port), HERE, 20, None)
        await until(lambda: server.num_bytes > 1_000_000)
        os.kill(server._process.pid, how)
        os.kill(client._process.pid, how)
        await until(lambda: server.is_over and client.is_over)
        with pytest.raises(engines.TestError, match=f"iperf3 ended by signal {int(how)}"):
            server.require_good()
        assert client.failure == f"iperf3 ended by signal {int(how)}"
        await client.stop()
        await server.stop()

    run(scenario)


def test_a_native_test_has_as_many_streams_as_one_of_iperf3():
    async def scenario():
        receiver = NativeReceiver(HERE, HERE, limit=20)
        sender = NativeSender(Endpoint(HERE, receiver.port), HERE, receiver.ticket, 20, None)
        await until(lambda: receiver.num_bytes > 0)
        count = sum(each.laddr.port == receiver.port for each in psutil.Process().net_connections("tcp4"))
        await sender.stop()
        await receiver.stop()
        return count

    assert run(scenario) == NUM_STREAMS
