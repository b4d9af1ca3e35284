"""The addresses of this machine's network interfaces, and the one by which the other ranks reach this rank."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import struct

import psutil
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # exported without saying so
from trimtab_api.errors import UserError

_SIOCGIFADDR = 0x8915  # <linux/sockios.h>
#: Addresses for documentation (RFC 5737, RFC 3849): the way to them is the default route. Nothing is sent.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def own_address() -> tuple[str, socket.AddressFamily]:
    """Return the address by which the other ranks reach this one.

    It is that of the first usable interface in GLOO_SOCKET_IFNAME, else of the one that leads to rank 0's host. If rank
    0's name leads to loopback, as Debian's /etc/hosts has it, it is `outward_address`: others cannot reach loopback.

    Raises:
        UserError: A variable names no usable interface, or no host.
    """
    names = os.environ.get("GLOO_SOCKET_IFNAME", "")
    if names:
        return _address_of_first(names), socket.AF_INET
    host = rank0_host()
    if host is None:
        return outward_address() or ("127.0.0.1", socket.AF_INET)
    try:
        family, _, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        address = source_address(family, (str(target[0]), 9))
    except OSError as error:
        remedy = f"cannot be reached from this machine ({error.strerror}); set it to an address of rank 0's host"
        raise UserError(remedy, field="MASTER_ADDR", value=host) from None
    if is_loopback(address) and not names_loopback(host):
        return outward_address() or (address, family)
    return address, family


def _address_of_first(names: str) -> str:
    """Return the address of the first usable interface of a list with commas, which Gloo takes as well."""
    for name in names.split(","):
        with contextlib.suppress(OSError):
            return address_of(name.strip())
    found = ", ".join(sorted(psutil.net_if_addrs()))
    raise UserError(
        f"names no network interface with an IPv4 address; set it to one of {found}, or unset it",
        field="GLOO_SOCKET_IFNAME",
        value=names,
    )


def address_of(interface: str) -> str:
    """Return the IPv4 address of a network device of this machine; raise `OSError` if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            raise OSError(errno.ENODEV, "no such interface with an address") from error
    return socket.inet_ntoa(answer[20:24])


def rank0_host() -> str | None:
    """Return the host of the store of the script's process group, else MASTER_ADDR; None if neither is known."""
    store = dist.distributed_c10d._get_default_store() if dist.is_initialized() else None
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, TCPStore) else os.environ.get("MASTER_ADDR") or None


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches the IP address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def names_loopback(host: str) -> bool:
    """Return whether the host names this machine alone: ``localhost``, or a loopback address."""
    with contextlib.suppress(ValueError):
        return is_loopback(host)
    return host == "localhost" or host.startswith("localhost.")


def outward_address() -> tuple[str, socket.AddressFamily] | None:
    """Return the address on the default route, else on the first interface that is up; None without either."""
    for family, target in _ELSEWHERE:
        with contextlib.suppress(OSError):
            return source_address(family, (target, 9)), family
    stats = psutil.net_if_stats()
    for name, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            is_usable = name in stats and stats[name].isup and address.family == socket.AF_INET
            if is_usable and not is_loopback(address.address):
                return address.address, socket.AF_INET
    return None


def source_address(family: socket.AddressFamily, target: tuple[str, int]) -> str:
    """Return this machine's address on the way to the target; raise `OSError` if there is no way."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # no packet leaves: the kernel only picks the route
        return str(probe.getsockname()[0])
