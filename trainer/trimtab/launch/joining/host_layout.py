"""Which ranks share a host, and who starts what serves them there."""

from __future__ import annotations

import contextlib
import ipaddress
import shutil
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from trimtab.launch.environment.ports import free_ports
from trimtab.transport.interfaces import own_address
from trimtab.transport.object_collectives import json_of

#: The same in every container of a machine, and of no other.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/net")
#: Characters of each text of a endpoint.
_MOST_TEXT = 1024


@dataclass(frozen=True)
class HostEndpoint:
    """A rank's description of the host that it runs on, for the other ranks."""

    host: str
    """Tells hosts apart: a machine, or a container or namespace with a network of its own."""
    address: str
    """The address at which other hosts reach it."""
    interface: str
    """The network device with that address."""
    port: int
    """Free here, for a network monitor."""
    has_iperf3: bool

    @classmethod
    def of_this_rank(cls) -> HostEndpoint:
        """Describe the host of this process."""
        address, _ = own_address()
        (port,) = free_ports(1, address)
        return cls(host_name(), address, _device_with(address), port, shutil.which("iperf3") is not None)

    @classmethod
    def read(cls, text: bytes) -> HostEndpoint:
        """Parse the JSON of `to_json`. Raise `ValueError`."""
        endpoint: HostEndpoint = _ENDPOINT(text)
        if (
            not 0 < endpoint.port < 1 << 16
            or max(map(len, (endpoint.host, endpoint.address, endpoint.interface))) > _MOST_TEXT
        ):
            raise ValueError
        ipaddress.ip_address(endpoint.address)
        return endpoint

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


_ENDPOINT = json_of(HostEndpoint)


def host_name(boot_id: Path = _BOOT_ID, namespace: Path = _NAMESPACE) -> str:
    """Return a text that tells hosts apart, where a namespace with a network of its own counts as a host.

    A sandbox may hide either file; the name of the machine then stands for it.
    """
    try:
        machine = boot_id.read_text().strip()
    except OSError:
        machine = socket.gethostname()
    with contextlib.suppress(OSError):
        return f"{machine} {namespace.readlink()}"
    return f"{machine} {socket.gethostname()}"


@dataclass(frozen=True)
class Layout:
    """The job's hosts, as one rank sees them."""

    hosts: tuple[HostEndpoint, ...]
    """One each, in the order of their first ranks: the job's workers. The endpoint is that of the host's first rank."""
    worker: int
    """Number of this rank's worker."""
    is_first: bool
    """True if this rank is its host's first, which starts the host's monitor."""
    local_rank: int
    """Place among the ranks of its host."""
    ranks: tuple[tuple[int, ...], ...]
    """Ranks of each host, in order."""


def layout(endpoints: Sequence[HostEndpoint], rank: int) -> Layout:
    """Work out the job's hosts by every rank's endpoint, in rank order, as seen from ``rank``."""
    ranks_of: dict[str, list[int]] = {}
    for number, endpoint in enumerate(endpoints):
        ranks_of.setdefault(endpoint.host, []).append(number)
    names, here = list(ranks_of), ranks_of[endpoints[rank].host]
    return Layout(
        hosts=tuple(endpoints[ranks[0]] for ranks in ranks_of.values()),
        worker=names.index(endpoints[rank].host),
        is_first=here[0] == rank,
        local_rank=here.index(rank),
        ranks=tuple(map(tuple, ranks_of.values())),
    )


def workers(num_ranks: int, on_each: int) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each worker of a launcher of ours, which counts worker by worker."""
    return tuple(tuple(range(first, first + on_each)) for first in range(0, num_ranks, on_each))


def _device_with(address: str) -> str:
    """Return the name of the network device that has the address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.family in (socket.AF_INET, socket.AF_INET6) and entry.address == address for entry in addresses):
            return name
    return "lo"
