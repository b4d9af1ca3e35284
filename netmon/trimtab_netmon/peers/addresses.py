"""Addresses of the other workers' monitors, by as few DNS queries as possible.

A job's pods start, move and end one by one. Each monitor knows all the others by name, and 32 monitors that look up the
names of 16 pending pods at every echo send thousands of queries a second. So this module alone looks names up, after
delays that double and have jitter. If the deployment names a headless Service, its one lookup stands for all monitors:
it returns every pod's address, and the echo asks each new address which worker it is.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from trimtab_api.rpc.addresses import absolute_name
from trimtab_api.throttling import Backoff

from trimtab_netmon.settings import Endpoint

#: Seconds without an answer after which a peer's address is looked up again: a pod that comes back has another one.
LOOK_UP_AFTER = 2.0
#: Seconds between two lookups of a name.
BACKOFF = Backoff(first=1.0, longest=30.0)
#: Seconds between two checks whether a lookup is due.
TICK = 0.1

#: Returns the IPv4 addresses of a name. Raises OSError.
Lookup = Callable[[str], Awaitable[list[str]]]


async def look_up(name: str) -> list[str]:
    """Return the IPv4 addresses of a name.

    Raises:
        OSError: If the name cannot be resolved.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        absolute_name(name), None, family=socket.AF_INET, type=socket.SOCK_STREAM
    )
    return [str(item[4][0]) for item in found]


@dataclass
class _LookupSchedule:
    """The time of the next lookup of one name."""

    due_at: float = float("-inf")
    num_lookups: int = 0

    def defer(self, now: float) -> None:
        """Postpone the next lookup by about the delay, which grows each time."""
        self.due_at = now + BACKOFF.delay(self.num_lookups) * random.uniform(0.5, 1.5)
        self.num_lookups += 1


class PeerAddresses:
    """The address of each worker's monitor.

    Args:
        worker: This monitor's worker, whose own address is where it listens.
        endpoints: Every worker's monitor by name, in order of worker.
        listen: Where this monitor listens.
        service: The headless Service that has the addresses of all monitors; None: each name is looked up.
        lookup: Returns the addresses of a name.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        worker: int,
        endpoints: Sequence[Endpoint],
        listen: Endpoint,
        service: str | None = None,
        lookup: Lookup = look_up,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = worker
        self._endpoints = endpoints
        self._service = service
        self._lookup = lookup
        self._clock = clock
        self._literal = {each: peer.host for each, peer in enumerate(endpoints) if is_literal(peer.host)}
        self._addresses = dict(self._literal)
        if is_literal(listen.host):
            self._literal[worker] = self._addresses[worker] = listen.loopback_or_host
        self._confirmed: dict[int, float] = {}
        self._schedules: dict[str, _LookupSchedule] = {}
        self._listed: set[str] = set()
        """The addresses that the Service had last."""

    def address(self, worker: int) -> str | None:
        """Return a worker's last known IPv4 address; None before there is one."""
        return self._addresses.get(worker)

    def endpoint(self, worker: int) -> tuple[str, int] | None:
        """Return a worker's last known address and port."""
        address = self._addresses.get(worker)
        return None if address is None else (address, self._endpoints[worker].port)

    @property
    def unclaimed(self) -> list[tuple[str, int]]:
        """Addresses and ports in the Service that are no known worker's."""
        known, ports = set(self._addresses.values()), sorted({endpoint.port for endpoint in self._endpoints})
        return [(address, port) for address in sorted(self._listed - known) for port in ports]

    def is_known(self, endpoint: tuple[str, int]) -> bool:
        """Return whether a worker's monitor was last found there."""
        return any(self.endpoint(worker) == endpoint for worker in self._addresses)

    def confirm(self, worker: int) -> None:
        """Note that a worker has just answered from its address."""
        self._confirmed[worker] = self._clock()

    def suggest(self, worker: int, address: str) -> None:
        """Note that a worker's monitor proved itself from an address; it counts unless the known one still answers."""
        if self._is_absent(worker):
            self._addresses[worker] = address

    async def run(self) -> None:
        """Look names up while peers are absent, until cancelled."""
        while True:
            await self.look_up_due()
            await asyncio.sleep(TICK)

    async def look_up_due(self) -> None:
        """Look up what is absent and due."""
        absent = {worker for worker in range(len(self._endpoints)) if self._is_absent(worker)}
        names = {self._endpoints[worker].host for worker in absent if self._service is None or worker == self._worker}
        lookups = [self._look_up_name(name) for name in sorted(names)]
        if self._service is not None and absent - {self._worker}:
            names.add(self._service)
            lookups.append(self._look_up_service(self._service))
        self._schedules = {name: schedule for name, schedule in self._schedules.items() if name in names}
        await asyncio.gather(*lookups)

    async def _look_up_service(self, service: str) -> None:
        if (found := await self._try(service)) is None:
            return
        self._listed = set(found)
        for worker, address in list(self._addresses.items()):
            if worker not in self._literal and self._is_absent(worker) and address not in self._listed:
                del self._addresses[worker]

    async def _look_up_name(self, name: str) -> None:
        if not (found := await self._try(name)):
            return
        for worker, endpoint in enumerate(self._endpoints):
            if endpoint.host == name:
                self._addresses[worker] = found[0]

    async def _try(self, name: str) -> list[str] | None:
        """Look a name up; return None if it is not due, or not known."""
        now = self._clock()
        schedule = self._schedules.setdefault(name, _LookupSchedule())
        if now < schedule.due_at:
            return None
        schedule.defer(now)
        try:
            return await self._lookup(name)
        except OSError:
            return None

    def _is_absent(self, worker: int) -> bool:
        """Return whether a worker's address has to be found: it has none, or has not answered there lately."""
        if worker in self._literal:
            return False
        if worker == self._worker:
            return worker not in self._addresses
        return self._clock() - self._confirmed.get(worker, float("-inf")) > LOOK_UP_AFTER


def is_literal(host: str) -> bool:
    """Return whether a host is written as an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
