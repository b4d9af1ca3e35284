"""Ports of this machine for servers that are started later: free, and never given to outgoing connections."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

from trimtab_api.errors import UserError

#: Ports are chosen from these.
_FIRST_PORT, _LAST_PORT = 10000, 65535
#: The first port that kernels usually give to outgoing connections.
_USUAL_FIRST_EPHEMERAL = 32768
#: If the kernel leaves fewer ports than this, all of `_FIRST_PORT` to `_LAST_PORT` are used.
_MIN_PORTS = 1000


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Find free ports of ``address``, no two next to each other: a rank's monitor takes the one above.

    The kernel gives none of them to outgoing connections: it could take such a port before the process that it is for
    listens there.
    """
    ports: list[int] = []
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    candidates = iter(random.sample(server_ports(), len(server_ports())))
    with ExitStack() as held:  # all are held until the last is found, so that none is found twice
        while len(ports) < count:
            number = next(candidates)
            if not {number - 1, number + 1}.isdisjoint(ports):
                continue
            port = held.enter_context(socket.socket(family))
            with suppress(OSError):  # taken
                port.bind((address, number))
                ports.append(number)
        return ports


def server_ports(kernels: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> range:
    """Return the ports never given to outgoing connections; all ports if the kernel leaves fewer than `_MIN_PORTS`."""
    try:
        first = int(kernels.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # no Linux
        first = _USUAL_FIRST_EPHEMERAL
    return range(_FIRST_PORT, first - 1) if first >= _FIRST_PORT + _MIN_PORTS else range(_FIRST_PORT, _LAST_PORT)


def refuse_taken_port(address: str, port: int, flag: str) -> None:
    """Raise `UserError` naming the flag where something listens at the port that it asks for."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: connections that ended do not count
        try:
            probe.bind((address, port))
        except OSError as error:
            remedy = f"cannot listen there ({error.strerror}); stop what uses the port, or choose another"
            raise UserError(remedy, field=flag, value=str(port)) from None
