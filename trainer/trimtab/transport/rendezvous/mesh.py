"""Connects every rank of a job with every other by TCP, for `SocketTransport`.

Both ends of a connection prove that they belong to the job and to this attempt of it, and for which pair of ranks the
connection is (`trimtab.transport.rendezvous.handshake`). Unauthenticated peers are dropped, and delay nobody.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from trimtab_api.socket_buffers import largest_buffer

from trimtab.transport.base import CommunicationError
from trimtab.transport.gpu import GpuTransport
from trimtab.transport.interfaces import address_of, own_address
from trimtab.transport.rendezvous import handshake
from trimtab.transport.rendezvous.agreed_secret import agree_in_process_group
from trimtab.transport.rendezvous.handshake import AuthenticationError, Steps
from trimtab.transport.rendezvous.handshake_server import CallError, HandshakeServer
from trimtab.transport.rendezvous.tcp import Endpoint, address_in, check_endpoint, checked_attempt
from trimtab.transport.tcp import SocketTransport

#: Bytes a connection may hold in flight: 1 Gbit/s over 2 x 60 ms. Small default buffers halve one flow at 25 ms.
_BUFFER_BYTES = 16 << 20
#: Seconds for all connections, once the ranks have met.
_CONNECT_SECONDS = 120.0
#: Size of an endpoint that is sent over a process group, padded with zeros.
_ENDPOINT_BYTES = 256
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # <asm-generic/socket.h>; not in the socket module


#: Makes a transport from this rank, a socket to each other rank, and the deadline in seconds.
Made = Callable[[int, dict[int, socket.socket], float], SocketTransport]


@dataclass(frozen=True)
class Listener:
    """The socket on which a rank waits for the others' connections; they are told its `endpoint`."""

    listener: socket.socket
    host: str
    family: socket.AddressFamily
    source: tuple[str, int] | None = None
    """Address that this rank's own calls come from; None: the route decides."""

    @classmethod
    def open(cls, num_ranks: int, interface: str = "") -> Listener:
        """Listen on the ``interface``, by which calls leave too; else on that of `own_address`.

        Raises:
            OSError: The interface has no address, or cannot be listened on.
            UserError: A variable names no usable interface.
        """
        host, family = (address_of(interface), socket.AF_INET) if interface else own_address()
        listener = socket.create_server((host, 0), family=family, backlog=num_ranks + 128)
        # Buffer sizes are inherited by accepted connections, and fix the window scale when the connection opens.
        _enlarge_buffers(listener)
        return cls(listener, host, family, (host, 0) if interface else None)

    @property
    def endpoint(self) -> Endpoint:
        """The listener's address, as plain JSON."""
        return {"host": self.host, "port": self.listener.getsockname()[1]}


def connect(
    rank: int,
    endpoints: list[Endpoint],
    listener: Listener,
    secret: bytes,
    attempt: bytes,
    deadline: float,
    transport: Made = SocketTransport,
) -> SocketTransport:
    """Connect to every other rank, and return the transport of these sockets; every rank calls it together.

    Args:
        rank: This process's rank.
        endpoints: Addresses of all ranks' listeners, by rank.
        listener: This rank's own; it is closed.
        secret: By which the ranks authenticate each other.
        attempt: Known to the ranks of this attempt alone.
        deadline: Seconds to connect, but two minutes at most; and of each later wait.
        transport: Makes the transport.

    Raises:
        CommunicationError: A peer cannot be reached in time.
    """
    until = time.monotonic() + min(deadline, _CONNECT_SECONDS)
    connections: dict[int, socket.socket] = {}
    with (
        listener.listener,
        HandshakeServer(listener.listener, lambda: _answer(rank, len(endpoints), secret, attempt)) as server,
    ):
        try:
            for peer in range(rank):
                address = address_in(endpoints, peer)
                connection = socket.socket(listener.family, socket.SOCK_STREAM)
                _enlarge_buffers(connection)
                if listener.source is not None:
                    connection.bind(listener.source)
                server.call(peer, connection, address, _call(rank, peer, secret, attempt))
            while len(connections) < len(endpoints) - 1:
                ended = server.next(until)
                if ended is None:
                    missing = min(set(range(len(endpoints))) - {rank} - connections.keys())
                    raise _unreachable(missing, endpoints, "no answer in time") if missing < rank else _absent(missing)
                connection, peer = ended
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[peer] = connection
        except CallError as error:
            _close(connections)
            raise _unreachable(error.peer, endpoints, error.reason) from error
        except BaseException:
            _close(connections)
            raise
    return transport(rank, connections, deadline)


def connect_process_group(
    process_group: dist.ProcessGroup | None, deadline: float, secret: bytes = b""
) -> SocketTransport:
    """Connect the ranks of a process group (None: all), over which addresses are agreed; see `connect`.

    If it is NCCL's, messages lie on this process's GPU, and it sums over the ranks. Without a ``secret`` the ranks
    agree on one (`agree_in_process_group`).
    """
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    transport: Made = SocketTransport
    device = torch.device("cpu")
    if "nccl" in dist.get_backend(process_group):
        device = torch.device("cuda", torch.cuda.current_device())
        transport = partial(GpuTransport, device=device, process_group=process_group)
    if size == 1:
        return transport(rank, {}, deadline)
    listener = Listener.open(size)
    secret = secret or agree_in_process_group(process_group, device)
    attempt = os.urandom(16)
    gathered = _gather(
        json.dumps({**listener.endpoint, "attempt": attempt.hex()}).encode(), size, device, process_group
    )
    endpoints = [_endpoint_of(data, peer) for peer, data in enumerate(gathered)]
    attempt = checked_attempt(endpoints[0].get("attempt"))
    made = connect(rank, endpoints, listener, secret, attempt, deadline, transport)
    made.secret = secret
    return made


def _endpoint_of(data: bytes, rank: int) -> Endpoint:
    """Return the endpoint that ``rank`` sent; raise `CommunicationError` if it is none."""
    try:
        endpoint = json.loads(data)
    except (ValueError, RecursionError):
        endpoint = None
    check_endpoint(endpoint, rank)
    checked: Endpoint = endpoint
    return checked


def _gather(data: bytes, size: int, device: torch.device, process_group: dist.ProcessGroup | None) -> list[bytes]:
    """Return every rank's ``data``, as bytes and nothing that could be run; it crosses from device to device."""
    padded = bytearray(data.ljust(_ENDPOINT_BYTES, b"\0"))
    mine = torch.frombuffer(padded, dtype=torch.uint8).to(device)
    everyone = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(everyone, mine, group=process_group)
    return [part.cpu().numpy().tobytes().rstrip(b"\0") for part in everyone]


def _call(rank: int, peer: int, secret: bytes, attempt: bytes) -> Steps[int]:
    yield from handshake.call(secret, _purpose(attempt, peer), rank)
    return peer


def _answer(rank: int, num_ranks: int, secret: bytes, attempt: bytes) -> Steps[int]:
    peer, _ = yield from handshake.answer(secret, _purpose(attempt, rank))
    if not rank < peer < num_ranks:
        raise AuthenticationError
    return peer


def _purpose(attempt: bytes, called: int) -> bytes:
    return b"gradients" + attempt + called.to_bytes(4, "little")


def _unreachable(peer: int, endpoints: list[Endpoint], reason: str) -> CommunicationError:
    where = f"{endpoints[peer]['host']}:{endpoints[peer]['port']}"
    return CommunicationError(
        peer,
        f"cannot be reached at {where} ({reason}); open its ports to this machine, or set GLOO_SOCKET_IFNAME there "
        "to the interface that leads here",
    )


def _absent(peer: int) -> CommunicationError:
    return CommunicationError(peer, "did not connect to this rank in time")


def _close(connections: dict[int, socket.socket]) -> None:
    for connection in connections.values():
        connection.close()


def _enlarge_buffers(connection: socket.socket) -> None:
    """Ask for buffers of `_BUFFER_BYTES`, if that enlarges them.

    Setting a buffer's size ends the kernel's own tuning of it. So without the privilege to pass the system's limit, and
    with a limit below what tuning reaches, it is left alone.
    """
    for option, force in ((socket.SO_SNDBUF, _SO_SNDBUFFORCE), (socket.SO_RCVBUF, _SO_RCVBUFFORCE)):
        try:
            connection.setsockopt(socket.SOL_SOCKET, force, _BUFFER_BYTES)
        except PermissionError:
            if largest_buffer(option) >= _BUFFER_BYTES:
                connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
