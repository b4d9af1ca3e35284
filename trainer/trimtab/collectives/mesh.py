"""Connects every rank of a process group with every other by TCP, for `SocketTransport`."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import socket
import struct
import time
from pathlib import Path

import torch.distributed as dist

from trimtab.collectives.sockets import SocketTransport
from trimtab.collectives.transport import CommunicationError

_GREETING = struct.Struct("<16sI")
#: Bytes a connection may hold in flight: 1 Gbit/s over 2 x 60 ms. Small default buffers halve one flow at 25 ms.
_BUFFER_BYTES = 16 << 20
#: Seconds for all connections, once the ranks have met.
_CONNECT_SECONDS = 120.0
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # <asm-generic/socket.h>; not in the socket module
_SIOCGIFADDR = 0x8915  # <linux/sockios.h>


def connect(process_group: dist.ProcessGroup | None, deadline: float) -> SocketTransport:
    """A socket to every other rank of ``process_group`` (None: all ranks); every rank calls it together.

    Addresses are agreed over the process group. A rank listens on the interface named by GLOO_SOCKET_IFNAME, else on
    the one that leads to MASTER_ADDR. Raises `CommunicationError` when a peer cannot be reached within ``deadline``
    seconds, or two minutes.
    """
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    if size == 1:
        return SocketTransport(rank, {}, deadline)
    host, family = _own_address()
    with socket.create_server((host, 0), family=family, backlog=size) as listener:
        # Buffer sizes are inherited by accepted connections, and fix the window scale when the connection opens.
        _enlarge_buffers(listener)
        mine = (host, listener.getsockname()[1], secrets.token_bytes(16))
        everyone: list[tuple[str, int, bytes]] = [mine] * size
        dist.all_gather_object(everyone, mine, group=process_group)
        until = time.monotonic() + min(deadline, _CONNECT_SECONDS)
        connections = {peer: _dial(rank, peer, everyone[peer], family, until, everyone[0][2]) for peer in range(rank)}
        connections |= _answer(listener, set(range(rank + 1, size)), until, everyone[0][2])
    for connection in connections.values():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketTransport(rank, connections, deadline)


def _dial(
    rank: int, peer: int, address: tuple[str, int, bytes], family: socket.AddressFamily, until: float, token: bytes
) -> socket.socket:
    host, port, _ = address
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        _enlarge_buffers(connection)
        connection.settimeout(max(0.01, until - time.monotonic()))
        connection.connect((host, port))
        connection.sendall(_GREETING.pack(token, rank))
    except OSError as error:
        connection.close()
        raise CommunicationError(peer, f"cannot be reached at {host}:{port} ({error}); is it firewalled?") from error
    return connection


def _answer(listener: socket.socket, missing: set[int], until: float, token: bytes) -> dict[int, socket.socket]:
    """Accept one connection from each rank of ``missing``; strangers are hung up on."""
    connections: dict[int, socket.socket] = {}
    while missing:
        listener.settimeout(max(0.01, until - time.monotonic()))
        try:
            connection, _ = listener.accept()
        except TimeoutError as error:
            raise CommunicationError(min(missing), "did not connect to this rank in time") from error
        greeting = b""
        connection.settimeout(max(0.01, until - time.monotonic()))
        with contextlib.suppress(OSError):
            greeting = connection.recv(_GREETING.size, socket.MSG_WAITALL)
        peer = -1
        if len(greeting) == _GREETING.size:
            their_token, claimed = _GREETING.unpack(greeting)
            if secrets.compare_digest(their_token, token) and claimed in missing:
                peer = claimed
        if peer < 0:
            connection.close()
            continue
        missing.discard(peer)
        connections[peer] = connection
    return connections


def _own_address() -> tuple[str, socket.AddressFamily]:
    """The address by which the other ranks reach this one."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    if interface:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            request = struct.pack("256s", interface.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError as error:
                raise OSError(
                    errno.ENODEV, f"GLOO_SOCKET_IFNAME={interface}: no such interface with an address"
                ) from error
        return socket.inet_ntoa(answer[20:24]), socket.AF_INET
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    family, _, _, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # no packet leaves: the kernel only picks the route
        return probe.getsockname()[0], family


def _enlarge_buffers(connection: socket.socket) -> None:
    """Ask for buffers of `_BUFFER_BYTES`, where that enlarges them.

    Setting a buffer's size ends the kernel's own tuning of it, so without the privilege to pass the system's limit,
    and with a limit below what tuning reaches, it is left alone.
    """
    for option, force, limit in (
        (socket.SO_SNDBUF, _SO_SNDBUFFORCE, "wmem_max"),
        (socket.SO_RCVBUF, _SO_RCVBUFFORCE, "rmem_max"),
    ):
        try:
            connection.setsockopt(socket.SOL_SOCKET, force, _BUFFER_BYTES)
        except PermissionError:
            with contextlib.suppress(OSError, ValueError):
                if int(Path("/proc/sys/net/core", limit).read_text()) >= _BUFFER_BYTES:
                    connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
