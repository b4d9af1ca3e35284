"""A UDP echo among monitors: the round trip of a small datagram, without the time that either process took over it.

The kernel stamps datagrams as they arrive, so a busy machine that wakes a monitor late does not look like a slow
network (RFC 5905's four timestamps, of which only differences on one clock are used)::

    requester  t1 ------------------>  t2 (kernel)   responder
               t4 (kernel) <---------  t3

    round trip = (t4 - t1) - (t3 - t2)

All four are times of a clock that nobody sets (`arrival_clock`). A monitor drops every datagram whose tag is not of
the job's key (`echo_packet`); without a key, every datagram from an address that is no peer's. It believes an answer
only once, and only from the address that it sent the request to. A request carries a random number that its answer
repeats; when the request left, and to whom, stays on this host.

If the job has a headless Service, a request may also ask an address of it which worker's monitor listens there
(`peer_addresses`).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import secrets
import socket
import struct
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from trimtab_api.errors import UserError

from trimtab_netmon.peers.addresses import PeerAddresses
from trimtab_netmon.probing.arrival_clock import ArrivalClock
from trimtab_netmon.probing.echo_packet import ANYONE, REPLY, REQUEST, SIZE, EchoPacket, pack, unpack
from trimtab_netmon.probing.interface import InterfaceWatch
from trimtab_netmon.probing.latency import RoundTrip
from trimtab_netmon.settings import Endpoint

#: Echoes a second to each peer.
RATE = 10.0
#: Echoes a second where the latency is suspect: enough of them fall into the short pauses of a busy link.
RATE_IF_SUSPECT = 50.0
#: Most echoes a second to all peers together, which bounds the processor time that echoes take.
MOST_ECHOES = 300.0
#: An echo is quiet if the interfaces were not busy from this many seconds before it until its end.
QUIET_BEFORE = 0.03
#: Seconds after which an answer is not waited for any more.
LONGEST_ROUND_TRIP = 10.0

#: Most datagrams that are read before other tasks of the monitor have their turn.
MOST_AT_ONCE = 64
#: Seconds for which requests and received datagrams are collected, since each wake-up of the process costs more than a
#: datagram. It lengthens no round trip: the kernel stamps what arrives.
BATCH = 0.01
#: Seconds between two attempts to find out which worker's monitor is at an address.
IDENTIFY_INTERVAL = 1.0

#: Linux's number, which Python's socket module does not name.
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = 128


class _Asked(NamedTuple):
    """A request that was not answered yet."""

    worker: int | None
    """None: the request asks which worker is there."""
    address: tuple[str, int]
    at: int
    """Monotonic nanoseconds."""


class EchoCounter(Protocol):
    """Counters of echoes by worker."""

    def count_request(self, worker: int) -> None:
        """Count a request that was sent."""

    def count_unanswered(self, worker: int) -> None:
        """Count a request that was not answered within `LONGEST_ROUND_TRIP`."""


class Echo:
    """Asks every peer, answers every peer, and hands each round trip to ``on_round_trip(worker, round trip)``.

    ``is_suspect(worker)`` says whether to ask that peer more often, ``capacity_to(worker)`` how many bytes per second
    the slower direction between this host and the peer carries (0: not known). Without peers it only waits.
    """

    def __init__(
        self,
        worker: int,
        num_workers: int,
        listen: Endpoint,
        addresses: PeerAddresses,
        key: bytes,
        interface: InterfaceWatch,
        counter: EchoCounter,
        on_round_trip: Callable[[int, RoundTrip], None],
        is_suspect: Callable[[int], bool],
        capacity_to: Callable[[int], float],
    ) -> None:
        self._worker = worker
        self._num_workers = num_workers
        self._addresses = addresses
        self._key = key
        self._asked: dict[int, _Asked] = {}
        """The pending requests by number, in order of time."""
        self._clock = ArrivalClock()
        self._interface = interface
        self._counter = counter
        self._on_round_trip = on_round_trip
        self._is_suspect = is_suspect
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
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in (self._keep_echoing(), self._keep_identifying()):
                    tasks.create_task(part)
        finally:
            self._socket.close()

    async def _keep_echoing(self) -> None:
        """Ask and answer what is due, then wait until there is more."""
        loop = asyncio.get_running_loop()
        due = [(loop.time(), worker) for worker in range(self._num_workers) if worker != self._worker]
        while True:
            self._receive_some()
            self._ask_due(due)
            has_more = asyncio.Event()
            timer = loop.call_at(due[0][0], has_more.set) if due else None
            loop.add_reader(self._socket.fileno(), has_more.set)
            try:
                await has_more.wait()
            finally:
                loop.remove_reader(self._socket.fileno())
                if timer is not None:
                    timer.cancel()
            await asyncio.sleep(BATCH)

    def _ask_due(self, due: list[tuple[float, int]]) -> None:
        """Ask each other worker whose time has come; ``due`` is a heap of times and workers.

        Intervals are random, so they are never in step with the job's own rhythm.
        """
        self._drop_unanswered()
        now = asyncio.get_running_loop().time()
        while due and due[0][0] <= now:
            worker = due[0][1]
            if (address := self._addresses.endpoint(worker)) is not None:
                self._ask(worker, address)
                self._counter.count_request(worker)
            rate = min(RATE_IF_SUSPECT if self._is_suspect(worker) else RATE, MOST_ECHOES / (self._num_workers - 1))
            heapq.heapreplace(due, (now + random.uniform(0.5, 1.5) / rate, worker))

    async def _keep_identifying(self) -> None:
        """Ask the addresses that nobody is known to have."""
        while True:
            for address in self._addresses.unclaimed:
                self._ask(None, address)
            await asyncio.sleep(random.uniform(0.5, 1.5) * IDENTIFY_INTERVAL)

    def _ask(self, worker: int | None, address: tuple[str, int]) -> None:
        number = secrets.randbits(64)
        self._asked[number] = _Asked(worker, address, time.monotonic_ns())
        responder = ANYONE if worker is None else worker
        self._send(EchoPacket(REQUEST, self._worker, responder, False, number, 0), address)

    def _send(self, packet: EchoPacket, address: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):  # like a datagram that is lost on the way
            self._socket.sendto(pack(self._key, packet), address)

    def _drop_unanswered(self) -> None:
        """Drop the oldest requests, whose answers would come too late."""
        oldest = time.monotonic_ns() - int(LONGEST_ROUND_TRIP * 1e9)
        while self._asked and self._asked[number := next(iter(self._asked))].at < oldest:
            if (worker := self._asked.pop(number).worker) is not None:
                self._counter.count_unanswered(worker)

    def _receive_some(self) -> None:
        """Read what has come; what is more than `MOST_AT_ONCE` is read when other tasks have had their turn."""
        come = []
        for _ in range(MOST_AT_ONCE):
            try:
                data, ancillary, _, address = self._socket.recvmsg(SIZE + 1, _ANCILLARY_BYTES)
            except BlockingIOError:
                break
            except OSError:
                continue  # an ICMP error of an earlier datagram
            if self._key or self._addresses.is_known(address):
                come.append((data, ancillary, address))
        self._clock.refresh()
        for each in come:
            self._receive(*each)

    def _receive(self, data: bytes, ancillary: list[tuple[int, int, bytes]], address: tuple[str, int]) -> None:
        packet = unpack(self._key, data)
        if packet is None or packet.requester >= self._num_workers:
            return
        arrived = self._clock.monotonic(_stamp(ancillary))
        if arrived is None:
            return  # the wall clock was set meanwhile
        if packet.kind == REQUEST and packet.responder in (self._worker, ANYONE):
            self._answer(packet, arrived, address)
        elif packet.kind == REPLY and packet.requester == self._worker:
            self._take(packet, arrived, address)

    def _answer(self, request: EchoPacket, arrived: int, address: tuple[str, int]) -> None:
        if self._key and request.requester != self._worker:
            self._addresses.suggest(request.requester, address[0])
        quiet = not self._interface.was_busy(arrived * 1e-9 - QUIET_BEFORE, self._capacity_to(request.requester))
        held = max(0, time.monotonic_ns() - arrived)
        self._send(request._replace(kind=REPLY, responder=self._worker, quiet=quiet, held=held), address)

    def _take(self, reply: EchoPacket, arrived: int, address: tuple[str, int]) -> None:
        asked = self._asked.get(reply.number)
        worker = reply.responder
        if asked is None or asked.address != address or worker == self._worker or worker >= self._num_workers:
            return  # no answer to a request of this monitor: a duplicate, or meant for an earlier monitor here
        if asked.worker is None:
            del self._asked[reply.number]
            self._addresses.suggest(worker, address[0])
            return
        if asked.worker != worker:
            return  # forged, or another worker's monitor is there now
        del self._asked[reply.number]
        seconds = (arrived - asked.at - reply.held) * 1e-9
        if not 0 < seconds < LONGEST_ROUND_TRIP:
            return  # the other host was suspended, or sent an impossible time
        self._addresses.confirm(worker)
        quiet_here = not self._interface.was_busy(asked.at * 1e-9 - QUIET_BEFORE, self._capacity_to(worker))
        self._on_round_trip(worker, RoundTrip(time.monotonic(), seconds, reply.quiet and quiet_here))


def _stamp(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return when the kernel received the datagram, in nanoseconds since the epoch."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(data[: _TIMESPEC.size])
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()
