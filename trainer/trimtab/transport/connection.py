"""One connection to a peer, the frames that cross it, and why it ended.

A frame is a header (kind, sequence, step tag, length) and a payload. Sequence and step tag reveal a peer that is
elsewhere in training. Two kinds of frames tell of failures. A rank that has waited long announces for whom it waits, so
that the ranks that wait for it do not blame it. A rank that gives up sends an abort frame, which says why and is its
last.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from dataclasses import dataclass, field

from trimtab_api.errors import on_one_line

from trimtab.transport.base import CommunicationError, malformed

HEADER = struct.Struct("<IIQQ")
MESSAGE, WAITING, ABORTING = 0x7472696D, 0x77616974, 0x6F766572
#: Payload of an abort frame: the rank at fault, and the reason. Its size is fixed, so that the frame can be found at
#: the end of whatever was received before it.
ABORT = struct.Struct("<i508s")
#: One sendmsg call takes at most this many buffers (Linux: IOV_MAX is 1024).
_MAX_PARTS = 512


@dataclass
class Connection:
    """The socket to one peer, and what waits to be sent there."""

    peer: int
    socket: socket.socket
    address: str
    num_ranks: int
    """Ranks of the mesh that it is part of."""
    outbox: deque[memoryview] = field(default_factory=deque)
    waits_for: int | None = None
    """The rank that the peer says it waits for."""
    has_announced: bool = False
    """True if this rank has announced that it waits for the peer, whose next message ends that."""
    wakes_at: int = 1
    """Bytes that must have come for the socket to count as readable."""

    def wake_at(self, num_bytes: int) -> None:
        """Count the socket as readable only once so many bytes have come, or the connection has ended."""
        if num_bytes != self.wakes_at:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, num_bytes)
            self.wakes_at = num_bytes

    def write(self) -> None:
        """Give the kernel as much of the outbox as it takes now.

        Raises:
            CommunicationError: The connection has ended.
        """
        outbox = self.outbox
        while outbox:
            try:
                count = self.socket.sendmsg([outbox[i] for i in range(min(len(outbox), _MAX_PARTS))])
            except BlockingIOError:
                return
            except OSError as error:
                raise lost(self, error) from error
            while count:
                first = outbox[0]
                if count < len(first):
                    outbox[0] = first[count:]
                    break
                count -= len(first)
                outbox.popleft()


def aborted(connection: Connection, payload: bytes | bytearray) -> CommunicationError:
    """Return the error that the payload of the peer's abort frame tells of."""
    at_fault, reason = ABORT.unpack(payload)
    if not 0 <= at_fault < connection.num_ranks:
        return malformed(connection.peer, f"that rank {at_fault} of {connection.num_ranks} is at fault")
    reporter = None if at_fault == connection.peer else connection.peer
    text = reason.rstrip(b"\0").decode(errors="replace")
    return CommunicationError(at_fault, on_one_line(text), reported_by=reporter)


def gone(connection: Connection, seconds: float) -> CommunicationError:
    """Return the error of a peer whose machine has acknowledged nothing for so many seconds."""
    return CommunicationError(
        connection.peer, f"its machine acknowledged nothing for {seconds:g} s ({connection.address}): gone or cut off"
    )


def lost(connection: Connection, error: OSError | None) -> CommunicationError:
    """Return why the connection ended: what the peer's abort frame says, else that the connection is lost."""
    heard = bytearray()
    with contextlib.suppress(OSError):
        while data := connection.socket.recv(1 << 20):
            heard = (heard + data)[-HEADER.size - ABORT.size :]
    if heard[: HEADER.size] == HEADER.pack(ABORTING, 0, 0, ABORT.size):
        return aborted(connection, heard[HEADER.size :])
    reason = "it closed the connection" if error is None else (error.strerror or str(error)).lower()
    return CommunicationError(
        connection.peer, f"connection to {connection.address} lost ({reason}); that rank's log says why"
    )
