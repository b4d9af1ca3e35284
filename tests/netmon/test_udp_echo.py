"""Whose answers an echo believes. The sockets are real; the one peer that it asks is played by the test."""

import asyncio
import socket
import time
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from trimtab_netmon.peers.addresses import PeerAddresses
from trimtab_netmon.probing import udp_echo as echoes
from trimtab_netmon.probing.echo_packet import REPLY, REQUEST, EchoPacket, pack, unpack
from trimtab_netmon.probing.interface import RECENT, InterfaceWatch
from trimtab_netmon.probing.udp_echo import Echo
from trimtab_netmon.settings import Endpoint

KEY = b"the key of this job"


class Peer:
    """Hears the requests of worker 0 as worker 1 would, and answers as it is told to."""

    def __init__(self):
        self.socket = socket.socket(type=socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.endpoint = Endpoint(*self.socket.getsockname())

    async def request(self):
        """The next request, and where it came from."""
        data, address = await asyncio.get_running_loop().sock_recvfrom(self.socket, 1024)
        return unpack(KEY, data), address


def reply_to(request, key=KEY, **changes):
    return pack(key, request._replace(kind=REPLY, **changes))


class Counts:
    """How many echoes were sent, and not answered, by worker."""

    def __init__(self):
        self.requests, self.unanswered = Counter(), Counter()

    def count_request(self, worker):
        self.requests[worker] += 1

    def count_unanswered(self, worker):
        self.unanswered[worker] += 1


@asynccontextmanager
async def asking(peer, key=KEY, counts=None):
    """Worker 0's echo at work, and the round trips that it believes."""
    taken = asyncio.Queue()
    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        mine = Endpoint(*free.getsockname())
    peers = (mine, peer.endpoint)
    echo = Echo(
        *(0, len(peers), mine, PeerAddresses(0, peers, mine), key, InterfaceWatch("lo"), counts or Counts()),
        on_round_trip=lambda *each: taken.put_nowait(each),
        is_suspect=lambda _: False,
        capacity_to=lambda _: 0.0,
    )
    running = asyncio.create_task(echo.run())
    try:
        async with asyncio.timeout(20):
            yield echo, taken
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        peer.socket.close()


async def next_is_the_honest_one(peer, taken, delay=0.05):
    """Answer one request honestly after a while: its round trip is the only one that was taken until then."""
    while True:
        request, address = await peer.request()
        if request.kind == REQUEST:
            break
    await asyncio.sleep(delay)  # the link's latency
    peer.socket.sendto(reply_to(request), address)
    worker, round_trip = await taken.get()
    assert worker == 1
    assert round_trip.seconds >= delay, "an answer that nobody asked for was believed"


def test_a_reply_with_a_number_that_was_never_asked_is_not_believed():
    async def scenario():
        peer = Peer()
        async with asking(peer) as (_, taken):
            request, address = await peer.request()
            for guess in (0, 1, request.number ^ 1, time.time_ns()):
                peer.socket.sendto(reply_to(request, number=guess), address)
            await next_is_the_honest_one(peer, taken)

    asyncio.run(scenario())


def test_a_reply_from_elsewhere_is_not_believed_even_if_it_knows_the_number():
    async def scenario():
        peer = Peer()
        async with asking(peer) as (_, taken):
            request, address = await peer.request()
            with socket.socket(type=socket.SOCK_DGRAM) as stranger:
                stranger.sendto(reply_to(request), address)
            await next_is_the_honest_one(peer, taken)

    asyncio.run(scenario())


@pytest.mark.parametrize("responder", [0, 2, 65535])
def test_a_reply_in_anothers_name_is_not_believed(responder):
    async def scenario():
        peer = Peer()
        async with asking(peer) as (_, taken):
            request, address = await peer.request()
            peer.socket.sendto(reply_to(request, responder=responder), address)
            await next_is_the_honest_one(peer, taken)

    asyncio.run(scenario())


def test_a_reply_counts_once():
    async def scenario():
        peer = Peer()
        async with asking(peer) as (_, taken):
            request, address = await peer.request()
            for _ in range(3):
                peer.socket.sendto(reply_to(request), address)
            await taken.get()
            await next_is_the_honest_one(peer, taken)

    asyncio.run(scenario())


def test_a_peer_that_claims_to_have_held_a_request_longer_than_it_took_is_not_believed():
    async def scenario():
        peer = Peer()
        async with asking(peer) as (_, taken):
            request, address = await peer.request()
            peer.socket.sendto(reply_to(request, held=2**63), address)
            await next_is_the_honest_one(peer, taken)

    asyncio.run(scenario())


@pytest.mark.parametrize("step", [-9_990_000_000, 9_990_000_000])
def test_an_answer_that_comes_as_the_wall_clock_is_set_is_not_believed(monkeypatch, step):
    """The clock is set by nearly all that an echo may take, and set right again."""

    async def scenario():
        peer = Peer()
        async with asking(peer) as (echo, taken):
            request, address = await peer.request()
            wall, steps = time.time_ns, [step]
            monkeypatch.setattr(echo._clock, "_wall", lambda: wall() + (steps.pop() if steps else 0))
            peer.socket.sendto(reply_to(request), address)
            while taken.empty():
                request, address = await peer.request()
                await asyncio.sleep(0.05)
                peer.socket.sendto(reply_to(request), address)
            _, round_trip = await taken.get()
            assert 0.05 <= round_trip.seconds < 9

    asyncio.run(scenario())


def test_a_request_without_an_answer_is_counted_and_forgotten(monkeypatch):
    monkeypatch.setattr(echoes, "LONGEST_ROUND_TRIP", 0.0)

    async def scenario():
        peer, counts = Peer(), Counts()
        async with asking(peer, counts=counts) as (echo, _):
            for _ in range(5):
                await peer.request()
            assert len(echo._asked) <= 1
            assert counts.requests[1] - 1 <= counts.unanswered[1] <= counts.requests[1]

    asyncio.run(scenario())


def test_a_reply_without_the_jobs_key_is_dropped():
    async def scenario():
        peer = Peer()
        async with asking(peer) as (_, taken):
            request, address = await peer.request()
            peer.socket.sendto(reply_to(request, key=b"another"), address)
            await next_is_the_honest_one(peer, taken)

    asyncio.run(scenario())


def test_a_request_without_the_jobs_key_gets_no_answer():
    async def scenario():
        peer = Peer()
        async with asking(peer):
            _, address = await peer.request()
            forged, honest = EchoPacket(REQUEST, 1, 0, False, 1, 0), EchoPacket(REQUEST, 1, 0, False, 2, 0)
            peer.socket.sendto(pack(b"another", forged), address)
            peer.socket.sendto(pack(KEY, honest), address)
            while True:
                packet, _ = await peer.request()
                if packet.kind == REPLY:
                    return packet.number

    assert asyncio.run(scenario()) == 2


def test_without_a_key_an_address_that_is_no_peers_gets_no_answer():
    async def scenario():
        peer = Peer()
        async with asking(peer, key=b""):
            data, address = await asyncio.get_running_loop().sock_recvfrom(peer.socket, 1024)
            with socket.socket(type=socket.SOCK_DGRAM) as stranger:
                stranger.setblocking(False)
                stranger.sendto(pack(b"", EchoPacket(REQUEST, 1, 0, False, 1, 0)), address)
                peer.socket.sendto(pack(b"", EchoPacket(REQUEST, 1, 0, False, 2, 0)), address)
                while unpack(b"", data).kind != REPLY:
                    data, _ = await asyncio.get_running_loop().sock_recvfrom(peer.socket, 1024)
                with pytest.raises(BlockingIOError):
                    stranger.recv(1024)

    asyncio.run(scenario())


@pytest.mark.parametrize("key", [KEY, b"another"])
def test_a_flood_of_datagrams_leaves_other_tasks_their_turns(monkeypatch, key):
    """At most `MOST_AT_ONCE` datagrams are read in one turn, and the counters once in 5 ms."""
    readings = Counter()

    class CountingWatch(InterfaceWatch):
        def read(self):
            readings["now"] += 1
            return super().read()

    monkeypatch.setattr(f"{__name__}.InterfaceWatch", CountingWatch)

    async def scenario():
        peer = Peer()
        async with asking(peer, key=KEY) as (echo, _):
            echo._capacity_to = lambda _: 1e9
            _, address = await peer.request()
            handled, receive = [0], echo._receive

            def count(*datagram):
                handled[-1] += 1
                receive(*datagram)

            echo._receive = count
            flood = pack(key, EchoPacket(REQUEST, 1, 0, False, 1, 0))
            readings.clear()
            begun = time.monotonic()
            while sum(handled) < 10 * echoes.MOST_AT_ONCE:
                for _ in range(20):
                    peer.socket.sendto(flood, address)
                await asyncio.sleep(0)
                handled.append(0)
            assert max(handled) <= echoes.MOST_AT_ONCE
            assert readings["now"] <= 2 + (time.monotonic() - begun) / RECENT

    asyncio.run(scenario())
