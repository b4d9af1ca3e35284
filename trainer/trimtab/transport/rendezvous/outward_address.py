"""The address by which other machines reach this one, where the way to rank 0 does not show it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket

import psutil
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # exported without saying so

#: Addresses for documentation (RFC 5737, RFC 3849): the way to them is the default route. Nothing is sent.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def rank0_host() -> str | None:
    """The host of the store of the script's process group, else MASTER_ADDR; None where neither is known."""
    store = dist.distributed_c10d._get_default_store() if dist.is_initialized() else None
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, TCPStore) else os.environ.get("MASTER_ADDR") or None


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches the IP address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def names_loopback(host: str) -> bool:
    """Whether the host is said to be this machine alone: ``localhost``, or a loopback address."""
    with contextlib.suppress(ValueError):
        return is_loopback(host)
    return host == "localhost" or host.startswith("localhost.")


def outward_address() -> tuple[str, socket.AddressFamily] | None:
    """This machine's address on the default route, else on its first interface that is up; None without either."""
    for family, target in _ELSEWHERE:
        with contextlib.suppress(OSError):
            return source_address(family, (target, 9)), family
    stats = psutil.net_if_stats()
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            is_usable = name in stats and stats[name].isup and each.family == socket.AF_INET
            if is_usable and not is_loopback(each.address):
                return each.address, socket.AF_INET
    return None


def source_address(family: socket.AddressFamily, target: tuple[str, int]) -> str:
    """This machine's address on the way to the target. Raises `OSError` where there is no way."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # no packet leaves: the kernel only picks the route
        return str(probe.getsockname()[0])
