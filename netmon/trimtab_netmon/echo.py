"""A UDP echo among monitors: the round trip of a small datagram, without the time that either process took over it.

The kernel stamps datagrams as they arrive, so a busy machine that wakes a monitor late does not look like a slow
network (RFC 5905's four timestamps, of which only differences on one clock are used)::

    requester  t1 ------------------>  t2 (kernel)   responder
               t4 (kernel) <---------  t3

    round trip = (t4 - t1) - (t3 - t2)

All four are times of a clock that nobody sets (`arrival_clock`). A monitor believes an answer only once, and only from
the address that it sent the request to. A request carries a random number that its answer repeats; when the request
left, and to whom, stays on this host.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trimtab_api.errors import UserError

from trimtab_netmon.arrival_clock import ArrivalClock
from trimtab_netmon.interface import InterfaceWatch
from trimtab_netmon.latency import RoundTrip
from trimtab_netmon.settings import Endpoint

#: Echoes a second to each peer.
RATE = 10.0
#: Echoes a second where the latency is in doubt: enough of them fall into the short pauses of a busy link.
RATE_IN_DOUBT = 50.0
#: Most echoes a second to all peers together: each takes a tenth of a millisecond of processor time on either host.
MOST_ECHOES = 300.0
#: An echo is quiet if the interfaces were not busy from this many seconds before it until its end.
QUIET_BEFORE = 0.03
#: Seconds of silence after which a peer's name is looked up again: a pod that comes back has another address.
LOOK_UP_AFTER = 2.0

#: Seconds after which an answer is not waited for any more.
LONGEST_ROUND_TRIP = 10.0

_REQUEST, _REPLY = 1, 2
#: magic, kind, requester, responder, whether the responder was quiet, the request's number, and how long the responder
#: held it [nanoseconds].
_PACKET = struct.Struct("!4sBHH?QQ")
_MAGIC = b"TTE2"
#: Linux's number, which Python's socket module does not name.
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")


@dataclass(frozen=True)
class _Asked:
    """A request that was not answered yet."""

    worker: int
    address: tuple[str, int]
    at: int
    """Monotonic nanoseconds."""


class Echo:
    """Asks every peer, answers every peer, and hands each round trip to ``on_round_trip(worker, round trip)``.

    ``is_in_doubt(worker)`` says whether to ask that peer more often, ``capacity_to(worker)`` how many bytes per second
    the slower direction between this host and the peer carries (0: not known). Without peers it only waits.
    """

    def __init__(
        self,
        worker: int,
        peers: Sequence[Endpoint],
        listen: Endpoint,
        interface: InterfaceWatch,
        on_round_trip: Callable[[int, RoundTrip], None],
        is_in_doubt: Callable[[int], bool],
        capacity_to: Callable[[int], float],
    ) -> None:
        self._worker = worker
        self._peers = peers
        self._addresses: dict[int, tuple[str, int]] = {}
        self._confirmed: dict[int, float] = {}
        self._asked: dict[int, _Asked] = {}
        """By number, in order of time."""
        self._clock = ArrivalClock()
        self._interface = interface
        self._on_round_trip = on_round_trip
        self._is_in_doubt = is_in_doubt
        self._capacity_to = capacity_to
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        try:
            self._socket.bind((listen.host, listen.port))
        except OSError as error:
            self._socket.close()
            raise UserError(
                f"cannot listen there for UDP ({error.strerror}); stop what uses the port, or choose another",
                field="--listen",
                value=str(listen),
            ) from None

    async def run(self) -> None:
        """Ask and answer until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._receive_all)
        try:
            async with asyncio.TaskGroup() as tasks:
                for worker, peer in enumerate(self._peers):
                    if worker != self._worker:
                        tasks.create_task(self._keep_asking(worker, peer))
        finally:
            loop.remove_reader(self._socket)
            self._socket.close()

    async def _keep_asking(self, worker: int, peer: Endpoint) -> None:
        while True:
            await self._ask(worker, peer)
            rate = min(RATE_IN_DOUBT if self._is_in_doubt(worker) else RATE, MOST_ECHOES / (len(self._peers) - 1))
            await asyncio.sleep(random.uniform(0.5, 1.5) / rate)  # never in step with the job's own rhythm

    async def _ask(self, worker: int, peer: Endpoint) -> None:
        try:
            if time.monotonic() - self._confirmed.get(worker, float("-inf")) > LOOK_UP_AFTER:
                found = await asyncio.get_running_loop().getaddrinfo(peer.host, peer.port, family=socket.AF_INET)
                self._addresses[worker] = (str(found[0][4][0]), peer.port)
                self._confirmed[worker] = time.monotonic()
            number, address = secrets.randbits(64), self._addresses[worker]
            self._forget_the_unanswered()
            self._asked[number] = _Asked(worker, address, time.monotonic_ns())
            self._socket.sendto(_PACKET.pack(_MAGIC, _REQUEST, self._worker, worker, False, number, 0), address)
        except OSError:
            self._confirmed.pop(worker, None)  # look the name up again: it may have a new address, or its first

    def _forget_the_unanswered(self) -> None:
        """Of requests whose answers would come too late: they are the first."""
        oldest = time.monotonic_ns() - int(LONGEST_ROUND_TRIP * 1e9)
        while self._asked and self._asked[number := next(iter(self._asked))].at < oldest:
            del self._asked[number]

    def _receive_all(self) -> None:
        while True:
            try:
                data, ancillary, _, address = self._socket.recvmsg(_PACKET.size + 1, 128)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error of an earlier datagram
            if len(data) != _PACKET.size:
                continue
            magic, kind, requester, responder, quiet, number, held = _PACKET.unpack(data)
            if magic != _MAGIC or not max(requester, responder) < len(self._peers):
                continue
            arrived = self._clock.monotonic(_stamp(ancillary))
            if arrived is None:
                continue  # the wall clock was set meanwhile
            if kind == _REQUEST and responder == self._worker:
                self._answer(requester, number, arrived, address)
            elif kind == _REPLY and requester == self._worker:
                self._take(responder, quiet, number, held, arrived, address)

    def _answer(self, requester: int, number: int, arrived: int, address: tuple[str, int]) -> None:
        quiet = not self._interface.was_busy(time.monotonic() - QUIET_BEFORE, self._capacity_to(requester))
        held = max(0, time.monotonic_ns() - arrived)
        try:
            self._socket.sendto(_PACKET.pack(_MAGIC, _REPLY, requester, self._worker, quiet, number, held), address)
        except OSError:
            return  # the requester asks again

    def _take(
        self, responder: int, quiet_there: bool, number: int, held: int, arrived: int, address: tuple[str, int]
    ) -> None:
        asked = self._asked.get(number)
        if asked is None or (asked.worker, asked.address) != (responder, address):
            return  # no answer to a request of this monitor: forged, a duplicate, or meant for an earlier monitor here
        del self._asked[number]
        seconds = (arrived - asked.at - held) * 1e-9
        if not 0 < seconds < LONGEST_ROUND_TRIP:
            return  # the other host was suspended, or sent an impossible time
        now = time.monotonic()
        self._confirmed[responder] = now
        quiet_here = not self._interface.was_busy(now - seconds - QUIET_BEFORE, self._capacity_to(responder))
        self._on_round_trip(responder, RoundTrip(now, seconds, quiet_there and quiet_here))


def _stamp(ancillary: list[tuple[int, int, bytes]]) -> int:
    """When the kernel received the datagram, nanoseconds since the epoch."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(data[: _TIMESPEC.size])
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()
