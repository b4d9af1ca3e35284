"""How the two ends of a native test prove to each other that they know the test's ticket.

The receiver draws the ticket for one test and tells it to the sender by gRPC, so under mutual TLS. Each connection of
the test then begins with digests (HMAC-SHA256) of numbers that both ends have just drawn. The ticket is not sent:

    sender      greeting: a number drawn for this connection
    receiver    a number of its own, and the digest of "receiver" and both numbers
    sender      the digest of "sender" and both numbers

The ends are generators, which yield bytes to send, or the number of bytes to wait for. They know no sockets.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
from collections.abc import Generator
from typing import TypeAlias

#: One end of a handshake: what it yields is sent, or is the number of bytes that it continues with.
Steps: TypeAlias = Generator[bytes | int, bytes, None]

_NUM_BYTES = 32


class AuthenticationError(Exception):
    """The other end does not know the ticket."""


def draw_ticket() -> bytes:
    """Return a ticket for one test."""
    return secrets.token_bytes(_NUM_BYTES)


def initiate(ticket: bytes) -> Steps:
    """Run the sender's end.

    Raises:
        AuthenticationError: If the receiver does not know the ticket.
    """
    greeting = secrets.token_bytes(_NUM_BYTES)
    yield greeting
    answer = yield 2 * _NUM_BYTES
    number, proof = answer[:_NUM_BYTES], answer[_NUM_BYTES:]
    if not hmac.compare_digest(proof, _digest(ticket, b"receiver", greeting + number)):
        raise AuthenticationError
    yield _digest(ticket, b"sender", greeting + number)


def respond(ticket: bytes) -> Steps:
    """Run the receiver's end.

    Raises:
        AuthenticationError: If the sender does not know the ticket.
    """
    greeting = yield _NUM_BYTES
    number = secrets.token_bytes(_NUM_BYTES)
    yield number + _digest(ticket, b"receiver", greeting + number)
    proof = yield _NUM_BYTES
    if not hmac.compare_digest(proof, _digest(ticket, b"sender", greeting + number)):
        raise AuthenticationError


def run_handshake(connection: socket.socket, steps: Steps) -> None:
    """Run one end over a connection with a timeout.

    Raises:
        AuthenticationError: If the other end does not know the ticket.
        OSError: If the connection fails.
    """
    request = next(steps)
    try:
        while True:
            received = b""
            if isinstance(request, bytes):
                connection.sendall(request)
            else:
                while len(received) < request:
                    if not (part := connection.recv(request - len(received))):
                        raise AuthenticationError
                    received += part
            request = steps.send(received)
    except StopIteration:
        return


def _digest(key: bytes, label: bytes, data: bytes) -> bytes:
    return hmac.digest(key, label + data, hashlib.sha256)
