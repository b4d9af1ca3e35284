"""The datagram of an echo, with a tag that only monitors of the same job can make."""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from trimtab_api.rpc.certificates import Certificates

REQUEST, REPLY = 1, 2
#: The responder of a request that asks which worker's monitor listens at an address.
ANYONE = 0xFFFF

#: magic, kind, requester, responder, whether the responder was quiet, the request's number, and how long the responder
#: held it [nanoseconds].
_FIELDS = struct.Struct("!4sBHH?QQ")
_MAGIC = b"TTE3"
_TAG_BYTES = 16
#: Bytes of a datagram.
SIZE = _FIELDS.size + _TAG_BYTES


class EchoPacket(NamedTuple):
    """The fields of one datagram."""

    kind: int
    requester: int
    responder: int
    quiet: bool
    number: int
    held: int


def echo_key(certificates: Certificates | None) -> bytes:
    """Return the key that all monitors of a job share; empty without certificates, when all run on this machine."""
    return b"" if certificates is None else hmac.digest(certificates.key, b"trimtab: echoes", hashlib.sha256)


def pack(key: bytes, packet: EchoPacket) -> bytes:
    """Return the datagram."""
    fields = _FIELDS.pack(_MAGIC, *packet)
    return fields + _tag(key, fields)


def unpack(key: bytes, data: bytes) -> EchoPacket | None:
    """Return the fields of a datagram; None if it is not an echo, or its tag is not of this key."""
    if len(data) != SIZE or not data.startswith(_MAGIC):
        return None
    fields = data[: _FIELDS.size]
    if not hmac.compare_digest(data[_FIELDS.size :], _tag(key, fields)):
        return None
    return EchoPacket(*_FIELDS.unpack(fields)[1:])


def _tag(key: bytes, fields: bytes) -> bytes:
    return hashlib.blake2s(fields, key=key, digest_size=_TAG_BYTES).digest()
