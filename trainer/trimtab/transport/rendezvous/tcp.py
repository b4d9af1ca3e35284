"""Rendezvous at rank 0: all ranks come with their address, and leave with everyone's.

Each rank must prove that it is of this job (`trimtab.transport.rendezvous.handshake`), and rank 0 proves it to them.
Messages are JSON, sealed with the connection's own key. Rank 0 listens only until all have come.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimtab_api.errors import UserError
from trimtab_api.names import TLS_VARIABLE
from trimtab_api.rpc.addresses import is_of_this_machine

from trimtab.transport.base import CommunicationError, malformed
from trimtab.transport.rendezvous import handshake
from trimtab.transport.rendezvous.handshake import AuthenticationError, Steps
from trimtab.transport.rendezvous.handshake_server import (
    PATIENCE_SECONDS,
    HandshakeServer,
    format_connection_error,
    run_handshake,
)

_RENDEZVOUS, _ENDPOINT, _ALL = b"rendezvous", b"endpoint", b"all"
#: Seconds between two attempts to reach rank 0, which may not listen yet.
_RETRY_SECONDS = 0.1
#: Seconds that a rank waits for rank 0's word after its own patience has ended: rank 0 knows who is missing.
_GRACE_SECONDS = 5.0
#: Ranks that are missing and named one by one.
_MOST_NAMED = 5

#: Hexadecimal digits of an `attempt`.
_ATTEMPT_DIGITS = 32
#: Characters of an address, as of a name in DNS.
_MOST_ADDRESS = 255

Endpoint = dict[str, Any]


@dataclass(frozen=True)
class RendezvousResult:
    """The outcome of a rendezvous, the same on every rank."""

    endpoints: list[Endpoint]
    """Endpoint of each rank, by rank."""
    attempt: bytes
    """Drawn by rank 0 for this rendezvous: a message of another attempt does not have it."""
    secret: bytes = b""
    """Agreed on here, by ranks that had none."""


def meet(
    host: str,
    port: int,
    rank: int,
    num_ranks: int,
    timeout: float,
    *,
    secret: bytes,
    endpoint: Endpoint,
    say: Callable[[list[int]], None] = lambda missing: None,
) -> RendezvousResult:
    """Bring ``endpoint`` (plain JSON) to rank 0 at ``host:port``, and wait until every rank has come.

    Args:
        host: Rank 0's address.
        port: Rank 0's port.
        rank: This process's rank.
        num_ranks: Number of ranks.
        timeout: Seconds.
        secret: By which the ranks authenticate each other.
        endpoint: This rank's.
        say: Called on rank 0 with the missing ranks, whenever they change.

    Raises:
        CommunicationError: Names a rank that has not come in time.
        UserError: There is no ``secret``, and the address is not of this machine.
    """
    if not secret and not is_of_this_machine(host):
        raise UserError(
            f"is not an address of this machine, and ranks meet elsewhere only if they can prove who they are; set "
            f"{TLS_VARIABLE} to a directory with certificates",
            field="MASTER_ADDR",
            value=host,
        )
    until = time.monotonic() + timeout
    if rank == 0:
        return _receive_all(host, port, num_ranks, timeout, until, secret, endpoint, say)
    return _connect_to_rank0(host, port, rank, num_ranks, timeout, until, secret, endpoint)


def waiting_for(missing: list[int], num_ranks: int) -> str:
    """Return a sentence on the ranks that are missing."""
    if len(missing) > _MOST_NAMED:
        return f"waiting for {len(missing)} of {num_ranks} ranks to join, the first of them rank {missing[0]}"
    *others, last = map(str, missing)
    names = f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"
    return f"waiting for {names} of {num_ranks} to join"


def _receive_all(
    host: str,
    port: int,
    num_ranks: int,
    timeout: float,
    until: float,
    secret: bytes,
    endpoint: Endpoint,
    say: Callable[[list[int]], None],
) -> RendezvousResult:
    """Run rank 0's side of the rendezvous."""
    here: dict[int, tuple[socket.socket, bytes]] = {}
    endpoints = {0: endpoint}
    try:
        listener = _listen(host, port, num_ranks)
    except OSError as error:
        raise CommunicationError(0, f"cannot listen at {host}:{port}: {error.strerror}") from error
    with listener, contextlib.ExitStack() as connections:
        with HandshakeServer(listener, lambda: _welcome(secret)) as server:
            while missing := [peer for peer in range(num_ranks) if peer not in endpoints]:
                say(missing)
                come = server.next(until)
                if come is None:
                    break
                connection, (rank, key, theirs) = come
                connections.enter_context(connection)
                if not 0 < rank < num_ranks:
                    continue
                check_endpoint(theirs, rank)
                here[rank], endpoints[rank] = (
                    (connection, key),
                    theirs,
                )  # the second time it has lost its first connection
        attempt = secrets.token_bytes(16)
        told = {"missing": missing} if missing else {"endpoints": _in_order(endpoints), "attempt": attempt.hex()}
        for connection, key in here.values():
            connection.settimeout(_GRACE_SECONDS)
            with contextlib.suppress(OSError):  # it finds out when it is connected to, or has ended
                connection.sendall(handshake.seal(key, _ALL, told))
    if missing:
        raise missing_ranks(missing, f"{host}:{port}", timeout)
    return RendezvousResult(_in_order(endpoints), attempt)


def _connect_to_rank0(
    host: str, port: int, rank: int, num_ranks: int, timeout: float, until: float, secret: bytes, endpoint: Endpoint
) -> RendezvousResult:
    """Run the side of every other rank."""
    where = f"{host}:{port}"
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=max(0.01, until - time.monotonic()))
        except OSError as error:
            if time.monotonic() + _RETRY_SECONDS >= until:
                raise CommunicationError(
                    0, f"did not let the ranks meet at {where}: {format_connection_error(error)}"
                ) from error
            time.sleep(_RETRY_SECONDS)
            continue
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            try:
                patience = min(until, time.monotonic() + PATIENCE_SECONDS)
                key = run_handshake(connection, handshake.call(secret, _RENDEZVOUS, rank), patience)
            except (OSError, AuthenticationError) as error:  # something else may have had the port before rank 0
                if time.monotonic() + _RETRY_SECONDS >= until:
                    raise CommunicationError(
                        0, f"did not let the ranks meet at {where}: {format_connection_error(error)}"
                    ) from error
                time.sleep(_RETRY_SECONDS)
                continue
            try:
                connection.sendall(handshake.seal(key, _ENDPOINT, endpoint))
                told = run_handshake(connection, handshake.unseal(key, _ALL), until + _GRACE_SECONDS)
            except (OSError, AuthenticationError) as error:
                said = format_connection_error(error)
                raise CommunicationError(
                    0, f"has left {where} before all ranks met there ({said}); that rank's log says why"
                ) from error
        return _checked(told, num_ranks, where, timeout)


def _checked(told: Any, num_ranks: int, where: str, timeout: float) -> RendezvousResult:
    """Return what rank 0 sent all ranks.

    Raises:
        CommunicationError: Ranks are missing, or it is nothing that rank 0 of this version sends.
    """
    told = told if isinstance(told, dict) else {}
    missing, endpoints, attempt = (told.get(name) for name in ("missing", "endpoints", "attempt"))
    if isinstance(missing, list) and missing and all(type(rank) is int and 0 < rank < num_ranks for rank in missing):
        raise missing_ranks(missing, where, timeout)
    if missing is not None or not isinstance(endpoints, list) or len(endpoints) != num_ranks:
        raise malformed(0, f"no addresses of {num_ranks} ranks when all had met at {where}")
    for endpoint in endpoints:
        check_endpoint(endpoint, 0)
    return RendezvousResult(endpoints, checked_attempt(attempt))


def check_endpoint(endpoint: Any, sender: int) -> None:
    """Raise `CommunicationError` if what ``sender`` brought is no object of JSON; the reader checks its fields."""
    if not isinstance(endpoint, dict):
        raise malformed(sender, "no endpoint of a rank to where the ranks meet")


def address_in(endpoints: list[Endpoint], rank: int) -> tuple[str, int]:
    """Return host and port in the endpoint of ``rank``; raise `CommunicationError` if it has none."""
    host, port = endpoints[rank].get("host"), endpoints[rank].get("port")
    is_host = isinstance(host, str) and 0 < len(host) <= _MOST_ADDRESS and host.isascii() and host.isprintable()
    if not is_host or type(port) is not int or not 0 < port < 1 << 16:
        raise malformed(rank, "no address, which is a host and a port")
    return str(host), port


def checked_attempt(attempt: Any, sender: int = 0) -> bytes:
    """Return an attempt's number from its hexadecimal digits; raise `CommunicationError` if ``sender`` sent none."""
    digits = attempt if isinstance(attempt, str) else ""
    if len(digits) != _ATTEMPT_DIGITS or not set(digits) <= set("0123456789abcdef"):
        raise malformed(sender, "no number of this attempt")
    return bytes.fromhex(digits)


def _welcome(secret: bytes) -> Steps[tuple[int, bytes, Endpoint]]:
    """Authenticate a peer, and return its rank, the connection's key and its endpoint."""
    rank, key = yield from handshake.answer(secret, _RENDEZVOUS)
    endpoint = yield from handshake.unseal(key, _ENDPOINT)
    return rank, key, endpoint


def _listen(host: str, port: int, num_ranks: int) -> socket.socket:
    """Listen at that address alone; at all if the name is none of this machine's own, as behind a proxy."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    try:
        return socket.create_server(address[:2], family=family, backlog=num_ranks + 128)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        return socket.create_server(("", port), family=family, backlog=num_ranks + 128)


def _in_order(endpoints: dict[int, Endpoint]) -> list[Endpoint]:
    return [endpoints[rank] for rank in sorted(endpoints)]


def missing_ranks(missing: list[int], where: str, timeout: float) -> CommunicationError:
    """Return the error for ranks that have not come in time."""
    others = f", nor did ranks {', '.join(map(str, missing[1:]))}" if len(missing) > 1 else ""
    return CommunicationError(
        missing[0],
        f"did not come to {where} within {timeout:g} s{others}; a rank comes with trimtab.attach: its log says why",
    )
