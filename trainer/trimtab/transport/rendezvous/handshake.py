"""The handshake by which the two ends of a connection prove to each other that they belong to one job.

Each proves that it knows the job's secret by a keyed digest (HMAC-SHA256, RFC 2104) of numbers that both have just
drawn, so the secret itself never crosses the network, and nothing that did can be used a second time:

    the one that calls         greeting: who it is, and a number drawn for this connection
    the one that was called    a number of its own, and the digest of "called", the purpose and all of the above
    the one that calls         the digest of "caller" and the same

Afterwards both have a key that only this connection has, for messages that must be nobody else's (`seal`). The ends are
written as generators, which yield bytes to send or the number of bytes to wait for; they know no sockets.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
#: One end of a conversation: what it yields is sent, or is the number of bytes that it goes on with.
Steps: TypeAlias = Generator[bytes | int, bytes, T]

_MAGIC = b"trimtab1"
_NUM_BYTES = 32
_GREETING = struct.Struct(f"<{len(_MAGIC)}sI{_NUM_BYTES}s")
_LENGTH = struct.Struct("<I")
#: A message is a rank's address, or all of them.
_MOST_BYTES = 1 << 20


class AuthenticationError(Exception):
    """The other end does not know the secret, or does not follow the handshake."""


def call(secret: bytes, purpose: bytes, rank: int) -> Steps[bytes]:
    """Run the handshake of the end that calls, as ``rank``.

    Returns:
        The connection's key.

    Raises:
        AuthenticationError: The other end does not know the secret.
    """
    greeting = _GREETING.pack(_MAGIC, rank, secrets.token_bytes(_NUM_BYTES))
    yield greeting
    answer = yield 2 * _NUM_BYTES
    number, proof = answer[:_NUM_BYTES], answer[_NUM_BYTES:]
    said = purpose + greeting + number
    if not hmac.compare_digest(proof, _digest(secret, b"called", said)):
        raise AuthenticationError
    yield _digest(secret, b"caller", said)
    return _digest(secret, b"key", said)


def answer(secret: bytes, purpose: bytes) -> Steps[tuple[int, bytes]]:
    """Run the handshake of the end that was called.

    Returns:
        The other end's rank, and the connection's key.

    Raises:
        AuthenticationError: The other end does not know the secret.
    """
    greeting = yield _GREETING.size
    magic, rank, _ = _GREETING.unpack(greeting)
    if magic != _MAGIC:
        raise AuthenticationError
    number = secrets.token_bytes(_NUM_BYTES)
    said = purpose + greeting + number
    yield number + _digest(secret, b"called", said)
    proof = yield _NUM_BYTES
    if not hmac.compare_digest(proof, _digest(secret, b"caller", said)):
        raise AuthenticationError
    return rank, _digest(secret, b"key", said)


def seal(key: bytes, purpose: bytes, data: Any) -> bytes:
    """Return a message of plain JSON that only an end with the connection's key can write, for this purpose alone."""
    text = json.dumps(data).encode()
    return _LENGTH.pack(len(text)) + _digest(key, purpose, text) + text


def unseal(key: bytes, purpose: bytes) -> Steps[Any]:
    """Wait for a message of `seal`; raise `AuthenticationError` if it is not one."""
    (length,) = _LENGTH.unpack((yield _LENGTH.size))
    if not 0 < length <= _MOST_BYTES:
        raise AuthenticationError
    seal = yield _NUM_BYTES
    text = yield length
    if not hmac.compare_digest(seal, _digest(key, purpose, text)):
        raise AuthenticationError
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AuthenticationError from error


def _digest(key: bytes, label: bytes, data: bytes) -> bytes:
    return hmac.digest(key, _LENGTH.pack(len(label)) + label + data, hashlib.sha256)
