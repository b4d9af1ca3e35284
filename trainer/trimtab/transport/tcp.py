"""Point-to-point over TCP, one connection for each pair of ranks: how gradients cross between CPUs.

A send is eager: its bytes leave at once, whether or not the peer has asked for them, and wait in the peer's kernel
until it does. A message therefore costs one one-way latency, where Gloo's rendezvous (the receiver's "ready" must reach
the sender first) costs two or more. The transport has no thread: the caller that waits moves all pending bytes.

`trimtab.transport.connection` has the frames.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from functools import cache
from typing import Any

import torch
from torch import Tensor

from trimtab.transport.base import CommunicationError, StepTag, Transport, malformed, num_bytes
from trimtab.transport.connection import ABORT, ABORTING, HEADER, MESSAGE, WAITING, Connection, aborted, gone, lost
from trimtab.transport.liveness import SILENCE_SECONDS, UnackedTimer, probe_when_idle

#: Large enough to overlap sending, receiving and adding; small enough that a relay's delay is a few milliseconds.
_CHUNK_BYTES = 1 << 19
#: Seconds in which abort frames may be sent.
_ABORT_SECONDS = 1.0
#: A rank that waits for more bytes than these wakes up once so many have come, and not at every packet. Linux holds a
#: socket's receive window down where this is more than a third of its first buffer (128 KiB).
_WAKE_BYTES = 1 << 15


class SocketTransport(Transport):
    """A mesh of connected sockets; `trimtab.transport.rendezvous.mesh` makes one."""

    chunk_bytes = _CHUNK_BYTES

    def __init__(
        self, rank: int, connections: dict[int, socket.socket], deadline: float, silence: float = SILENCE_SECONDS
    ) -> None:
        super().__init__(rank, len(connections) + 1)
        self.deadline = deadline
        """Seconds that a wait may last without a byte moving."""
        self.silence = silence
        """A peer counts as gone when its machine has acknowledged nothing for this many seconds."""
        self._connections = {}
        for peer, connected in connections.items():
            connected.setblocking(False)
            probe_when_idle(connected, silence)
            self._connections[peer] = Connection(peer, connected, str(connected.getpeername()[0]), self.size)
        self._header = bytearray(HEADER.size)

    def _send(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        connection = self._connections[peer]
        header = HEADER.pack(MESSAGE, self.sequence & 0xFFFFFFFF, self.step_tag.code, num_bytes(parts))
        connection.outbox.append(memoryview(header))
        connection.outbox.extend(_bytes_of(part) for part in parts if part.numel())
        connection.write()

    def receive(self, peer: int, *parts: Tensor) -> None:
        """See `Transport.receive`."""
        connection = self._connections[peer]
        expected = num_bytes(parts)
        length = self._read_header(connection)
        if length != expected:
            raise CommunicationError(
                peer, f"sent {length} bytes where {expected} were expected: the ranks disagree about the plan"
            )
        for part in parts:
            self._read(connection, _bytes_of(part))

    def receive_bytes(self, peer: int) -> Tensor:
        """See `Transport.receive_bytes`."""
        connection = self._connections[peer]
        length = self._read_header(connection)
        if length > _memory_bytes():
            raise malformed(peer, f"a message of {length} bytes, more than this machine's memory")
        data = torch.empty(length, dtype=torch.uint8)
        self._read(connection, _bytes_of(data))
        return data

    def flush(self) -> None:
        """See `Transport.flush`."""
        while pending := [connection for connection in self._connections.values() if connection.outbox]:
            self._wait(pending[0], reading=False)

    def abort(self, peer: int, reason: str) -> None:
        """See `Transport.abort`."""
        frame = HEADER.pack(ABORTING, 0, 0, ABORT.size) + ABORT.pack(peer, reason.encode()[:508])
        for connection in self._connections.values():
            connection.outbox.append(memoryview(frame))
        until = time.monotonic() + _ABORT_SECONDS
        while (pending := [c for c in self._connections.values() if c.outbox]) and time.monotonic() < until:
            poll = select.poll()
            for connection in pending:
                poll.register(connection.socket, select.POLLOUT)
            poll.poll(100)
            for connection in pending:
                try:
                    connection.write()
                except CommunicationError:
                    connection.outbox.clear()
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """See `Transport.close`."""
        for connection in self._connections.values():
            connection.socket.close()

    def _read_header(self, connection: Connection) -> int:
        """Return the length of the next message's payload."""
        while True:
            self._read(connection, memoryview(self._header))
            kind, sequence, step_tag, length = HEADER.unpack(self._header)
            if kind != WAITING:
                break
            if sequence >= self.size or step_tag or length:
                raise malformed(connection.peer, f"that it waits for rank {sequence} of {self.size}")
            self._heard_waiting(connection, sequence)
        if kind == ABORTING:
            if length != ABORT.size:
                raise malformed(connection.peer, f"a last frame of {length} bytes")
            payload = bytearray(length)
            self._read(connection, memoryview(payload))
            raise aborted(connection, payload)
        if kind != MESSAGE:
            raise malformed(connection.peer, f"a frame of an unknown kind ({kind:#x})")
        if sequence != self.sequence & 0xFFFFFFFF:
            raise CommunicationError(
                connection.peer,
                f"is at exchange {sequence} where this rank is at {self.sequence}: the ranks disagree about the plan",
            )
        if step_tag != self.step_tag.code:
            raise CommunicationError(
                connection.peer,
                f"is at {StepTag.of_code(step_tag)} where this rank is at {self.step_tag}: the ranks disagree, as where"
                " one leaves out a batch of a trial, or a step: let all decide by what is alike on all, as by the mean",
            )
        connection.waits_for, connection.has_announced = None, False
        return int(length)

    def _read(self, connection: Connection, view: memoryview) -> None:
        """Fill ``view`` from the connection."""
        while len(view):
            try:
                count = connection.socket.recv_into(view)
            except BlockingIOError:
                connection.wake_at(min(len(view), _WAKE_BYTES))
                self._wait(connection, reading=True)
                continue
            except OSError as error:
                raise lost(connection, error) from error
            if count == 0:
                raise lost(connection, None)
            view = view[count:]

    def _wait(self, connection: Connection, *, reading: bool) -> None:
        """Return when ``connection`` can be read, or else was written to; write all pending sends meanwhile."""
        moved = time.monotonic()
        announced = False
        timers: dict[int, UnackedTimer] = {}
        while True:
            seconds = moved + self.deadline * (1.0 if announced else 0.5) - time.monotonic()
            if seconds <= 0 and announced:
                raise self._stalled(connection, reading)
            if seconds <= 0:
                self._announce_waiting(_at_fault(connection))
                announced = connection.has_announced = True
                continue
            poll = select.poll()
            writing = {c.socket.fileno(): c for c in self._connections.values() if c.outbox}
            for descriptor in writing:
                poll.register(descriptor, select.POLLOUT)
            awaited = connection.socket.fileno()
            if reading:
                poll.register(awaited, select.POLLIN | (select.POLLOUT if awaited in writing else 0))
            ready = dict(poll.poll(min(seconds, self.silence / 6) * 1e3))
            if not ready:  # while bytes move, there is no need to ask the kernel
                for unfinished in {connection.peer: connection, **{c.peer: c for c in writing.values()}}.values():
                    if timers.setdefault(unfinished.peer, UnackedTimer()).seconds(unfinished.socket) >= self.silence:
                        raise gone(unfinished, self.silence)
            for descriptor in ready.keys() & writing.keys():
                if ready[descriptor] & ~select.POLLIN:
                    writing[descriptor].write()
                    moved = time.monotonic()
            if awaited in ready and (not reading or ready[awaited] & ~select.POLLOUT):
                return

    def _announce_waiting(self, peer: int) -> None:
        """Tell every other rank that this one waits for ``peer``."""
        frame = memoryview(HEADER.pack(WAITING, peer, 0, 0))
        for connection in self._connections.values():
            if connection.peer != peer:
                connection.outbox.append(frame)
                connection.write()

    def _heard_waiting(self, connection: Connection, peer: int) -> None:
        """Note that the other end waits for ``peer``, and tell the ranks that wait for this one, once.

        They are told at once only if this rank has waited for long itself. Else the wait may be over: the message that
        ended it can follow, and ranks that were told now would blame ``peer`` when they next wait in vain.
        """
        if peer not in (connection.waits_for, self.rank):
            connection.waits_for = peer
            if connection.has_announced:
                self._announce_waiting(peer)

    def _stalled(self, connection: Connection, reading: bool) -> CommunicationError:
        at_fault = _at_fault(connection)
        verb = "sent" if reading else "took"
        reporter = None if at_fault == connection.peer else connection.peer
        address = self._connections[at_fault].address
        return CommunicationError(
            at_fault, f"{verb} nothing for {self.deadline:g} s ({address}): stalled or cut off", reported_by=reporter
        )


def _at_fault(connection: Connection) -> int:
    """Return the rank that is to blame for a wait on ``connection``, as far as is known."""
    return connection.peer if connection.waits_for is None else connection.waits_for


@cache
def _memory_bytes() -> int:
    """Return the memory of this machine: no message is larger."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor as bytes."""
    array: Any = tensor.detach().view(-1).view(torch.uint8).numpy()
    return memoryview(array)
