"""Point-to-point over TCP, one connection for each pair of ranks: how gradients cross between CPUs.

A send is eager: its bytes leave at once, whether or not the peer has asked for them, and wait in the peer's kernel
until it does. One message so costs one one-way latency, where Gloo's rendezvous (the receiver's "ready" must reach
the sender first) costs up to three. There is no thread of its own: whoever waits moves all pending bytes.

A frame is a header (kind, sequence, length) and the payload.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trimtab.collectives.transport import CommunicationError, Transport

_HEADER = struct.Struct("<IIQ")
_MESSAGE, _ABORT = 0x7472696D, 0x74616221
_ABORT_RANK = struct.Struct("<I")
#: Large enough to overlap sending, receiving and adding; small enough that a relay's delay is a few milliseconds.
_CHUNK_BYTES = 1 << 19
#: One sendmsg call takes at most this many buffers (Linux: IOV_MAX is 1024).
_MAX_PARTS = 512


@dataclass
class _Connection:
    peer: int
    socket: socket.socket
    address: str
    outbox: deque[memoryview] = field(default_factory=deque)


class SocketTransport(Transport):
    """A mesh of connected sockets; `trimtab.collectives.mesh` makes one."""

    chunk_bytes = _CHUNK_BYTES

    def __init__(self, rank: int, connections: dict[int, socket.socket], deadline: float) -> None:
        super().__init__(rank, len(connections) + 1)
        self.deadline = deadline
        """Seconds a wait may pass without a byte moving."""
        self._connections = {}
        for peer, connected in connections.items():
            connected.setblocking(False)
            self._connections[peer] = _Connection(peer, connected, str(connected.getpeername()[0]))
        self._header = bytearray(_HEADER.size)

    def _send(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        connection = self._connections[peer]
        views = [_bytes_of(part) for part in parts]
        length = sum(len(view) for view in views)
        connection.outbox.append(memoryview(_HEADER.pack(_MESSAGE, self.sequence & 0xFFFFFFFF, length)))
        connection.outbox.extend(view for view in views if len(view))
        self._write(connection)

    def _send_bytes(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        self._send(peer, parts)  # every frame tells its size

    def receive(self, peer: int, *parts: Tensor) -> None:
        connection = self._connections[peer]
        expected = sum(part.numel() * part.element_size() for part in parts)
        length = self._read_header(connection)
        if length != expected:
            raise CommunicationError(
                peer, f"sent {length} bytes where {expected} were expected: the ranks disagree about the plan"
            )
        for part in parts:
            self._read(connection, _bytes_of(part))

    def receive_bytes(self, peer: int) -> Tensor:
        connection = self._connections[peer]
        data = torch.empty(self._read_header(connection), dtype=torch.uint8)
        self._read(connection, _bytes_of(data))
        return data

    def flush(self) -> None:
        while pending := [connection for connection in self._connections.values() if connection.outbox]:
            self._wait(pending[0], reading=False)

    def abort(self, peer: int, reason: str) -> None:
        text = reason.encode()[:1024]
        frame = _HEADER.pack(_ABORT, 0, _ABORT_RANK.size + len(text)) + _ABORT_RANK.pack(peer) + text
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                if not connection.outbox:  # else the frame would be taken for payload; the closed connection must do
                    connection.socket.send(frame)
                connection.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.socket.close()

    def _read_header(self, connection: _Connection) -> int:
        """The length of the next message's payload."""
        self._read(connection, memoryview(self._header))
        kind, sequence, length = _HEADER.unpack(self._header)
        if kind == _ABORT:
            payload = bytearray(length)
            self._read(connection, memoryview(payload))
            (at_fault,) = _ABORT_RANK.unpack_from(payload)
            raise CommunicationError(at_fault, payload[_ABORT_RANK.size :].decode(), reported_by=connection.peer)
        if kind != _MESSAGE or sequence != self.sequence & 0xFFFFFFFF:
            raise CommunicationError(
                connection.peer,
                f"is at exchange {sequence} where this rank is at {self.sequence}: the ranks disagree about the plan",
            )
        return int(length)

    def _read(self, connection: _Connection, view: memoryview) -> None:
        """Fill ``view`` from the connection."""
        while len(view):
            try:
                count = connection.socket.recv_into(view)
            except BlockingIOError:
                self._wait(connection, reading=True)
                continue
            except OSError as error:
                raise _lost(connection, error) from error
            if count == 0:
                raise _lost(connection, None)
            view = view[count:]

    def _write(self, connection: _Connection) -> None:
        """Hand the kernel what it takes now."""
        outbox = connection.outbox
        while outbox:
            try:
                count = connection.socket.sendmsg([outbox[i] for i in range(min(len(outbox), _MAX_PARTS))])
            except BlockingIOError:
                return
            except OSError as error:
                raise _lost(connection, error) from error
            while count:
                first = outbox[0]
                if count < len(first):
                    outbox[0] = first[count:]
                    break
                count -= len(first)
                outbox.popleft()

    def _wait(self, connection: _Connection, *, reading: bool) -> None:
        """Until ``connection`` can be read (or, not ``reading``, something was written); moves pending sends along."""
        until = time.monotonic() + self.deadline
        while True:
            poll = select.poll()
            writers = {}
            for other in self._connections.values():
                if other.outbox:
                    writers[other.socket.fileno()] = other
                    poll.register(other.socket, select.POLLOUT)
            if reading:
                also = select.POLLOUT if connection.outbox else 0
                poll.register(connection.socket, select.POLLIN | also)
            ready = poll.poll(max(0.0, until - time.monotonic()) * 1e3)
            if not ready:
                verb = "sent" if reading else "took"
                raise CommunicationError(
                    connection.peer,
                    f"{verb} nothing for {self.deadline:g} s ({connection.address}): stalled or cut off",
                )
            wrote = False
            readable = False
            for descriptor, events in ready:
                if reading and descriptor == connection.socket.fileno() and events & ~select.POLLOUT:
                    readable = True
                if descriptor in writers and events & ~select.POLLIN:
                    self._write(writers[descriptor])
                    wrote = True
            if readable or (wrote and not reading):
                return
            if wrote:
                until = time.monotonic() + self.deadline


def _bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor as bytes."""
    array: Any = tensor.detach().view(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _lost(connection: _Connection, error: OSError | None) -> CommunicationError:
    reason = "closed the connection" if error is None else (error.strerror or str(error)).lower()
    return CommunicationError(
        connection.peer, f"connection lost ({connection.address}: {reason}); that rank's log says why"
    )
