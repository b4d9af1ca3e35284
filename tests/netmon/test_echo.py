"""Whose answers an echo believes. The sockets are real; the one peer that it asks is played by the test."""

import asyncio
import socket
import time
from contextlib import asynccontextmanager

import pytest
from trimtab_netmon import echo as echoes
from trimtab_netmon.echo import Echo
from trimtab_netmon.interface import InterfaceWatch
from trimtab_netmon.settings import Endpoint

KIND, REQUESTER, RESPONDER, QUIET, NUMBER, HELD = range(1, 7)


class Peer:
    """Hears the requests of worker 0 as worker 1 would, and answers as it is told to."""

    def __init__(self):
        self.socket = socket.socket(type=socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.endpoint = Endpoint(*self.socket.getsockname())

    async def request(self):
        """The fields of the next request, and where it came from."""
        data, address = await asyncio.get_running_loop().sock_recvfrom(self.socket, 1024)
        return list(echoes._PACKET.unpack(data)), address


def reply_to(request, **changes):
    fields = list(request)
    fields[KIND] = echoes._REPLY
    for name, value in changes.items():
        fields[globals()[name.upper()]] = value
    return echoes._PACKET.pack(*fields)


@asynccontextmanager
async def asking(peer):
    """Worker 0's echo at work, and the round trips that it believes."""
    taken = asyncio.Queue()
    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        mine = Endpoint(*free.getsockname())
    echo = Echo(
        *(0, (mine, peer.endpoint), mine, InterfaceWatch("lo")),
        on_round_trip=lambda *each: taken.put_nowait(each),
        is_in_doubt=lambda _: False,
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
        if request[KIND] == echoes._REQUEST:
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
            for guess in (0, 1, request[NUMBER] ^ 1, time.time_ns()):
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


def test_what_was_never_answered_is_forgotten(monkeypatch):
    monkeypatch.setattr(echoes, "LONGEST_ROUND_TRIP", 0.0)

    async def scenario():
        peer = Peer()
        async with asking(peer) as (echo, _):
            for _ in range(5):
                await peer.request()
            assert len(echo._asked) <= 1

    asyncio.run(scenario())
