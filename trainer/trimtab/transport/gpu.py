"""Point-to-point between GPUs over sockets, by way of the host's memory; sums over all ranks by the backend (NCCL).

NCCL's own point-to-point has neither eager sends nor messages of unknown size, and a rank that connects to a failed one
waits for it without end. What crosses Ethernet passes through the host's memory anyway.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from trimtab.transport.base import HAS_LEFT, CommunicationError
from trimtab.transport.connection import lost
from trimtab.transport.tcp import SocketTransport

#: Until the next look at sums under way: a share of the seconds that they have taken so far, within bounds.
_SHARE_BETWEEN_LOOKS, _LEAST_SECONDS, _MOST_SECONDS = 0.02, 1e-4, 5e-3
#: Seconds in which a sum may still end once a rank has closed its connections: it may have taken its own part in it.
_GRACE_SECONDS = 2.0


class GpuTransport(SocketTransport):
    """Sockets whose messages lie on ``device``; those of the CPU cross as they are."""

    def __init__(
        self,
        rank: int,
        connections: dict[int, socket.socket],
        deadline: float,
        *,
        device: torch.device,
        process_group: dist.ProcessGroup | None,
    ) -> None:
        """Make the transport; ``process_group`` (None: the default one) has the same ranks, and sums over them."""
        super().__init__(rank, connections, deadline)
        self.device = device
        self.has_own_all_reduce = True
        self._process_group = process_group

    def _send(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        super()._send(peer, tuple(_on_host(part) for part in parts))

    def receive(self, peer: int, *parts: Tensor) -> None:
        """See `Transport.receive`."""
        on_host = [part if part.device.type == "cpu" else _host_memory(part) for part in parts]
        super().receive(peer, *on_host)
        for part, received in zip(parts, on_host, strict=True):
            if part is not received:
                part.copy_(received)

    def receive_bytes(self, peer: int) -> Tensor:
        """See `Transport.receive_bytes`."""
        return super().receive_bytes(peer).to(self.device)

    def all_reduce(self, pieces: Sequence[Tensor]) -> None:
        """See `Transport.all_reduce`."""
        for piece in pieces:
            self._count((piece,))
        try:
            works = [dist.all_reduce(p, group=self._process_group, async_op=True) for p in pieces if p.numel()]
            self._wait_for_sums(works)
        except RuntimeError as error:
            raise self._cause(error) from error

    def abort(self, peer: int, reason: str) -> None:
        """See `Transport.abort`."""
        super().abort(peer, reason)
        self._abort_sums()

    def leave(self, reason: str = HAS_LEFT) -> None:
        """See `Transport.leave`; other ranks may still finish the sums under way."""
        super().abort(self.rank, reason)

    def _wait_for_sums(self, works: Sequence[dist.Work]) -> None:
        """Return when all sums are done.

        Raises:
            RuntimeError: The backend failed, a connection was closed, or the deadline has passed.
        """
        began = now = time.monotonic()
        until, has_ended = began + self.deadline, False
        while not all(work.is_completed() for work in works):
            if not has_ended and self._ended_connections():
                has_ended, until = True, min(until, now + _GRACE_SECONDS)
            if now > until:
                self._abort_sums()
                raise RuntimeError("a rank is gone" if has_ended else f"no sum within {self.deadline:g} s")
            time.sleep(min(_MOST_SECONDS, max(_LEAST_SECONDS, _SHARE_BETWEEN_LOOKS * (now - began))))
            now = time.monotonic()
        for work in works:
            work.wait()

    def _ended_connections(self, seconds: float = 0.0) -> list[int]:
        """Return peers that have closed their end, or lost it; wait ``seconds`` for the first."""
        poll = select.poll()
        peers = {connection.socket.fileno(): peer for peer, connection in self._connections.items()}
        for descriptor in peers:
            poll.register(descriptor, select.POLLRDHUP)
        return [peers[descriptor] for descriptor, _ in poll.poll(seconds * 1e3)]

    def _cause(self, error: RuntimeError) -> CommunicationError:
        """Return the error of a peer that has closed its end, or else the backend's."""
        for peer in self._ended_connections(_GRACE_SECONDS):
            return lost(self._connections[peer], None)
        return CommunicationError((self.rank + 1) % self.size, f"no sum with it: {error}")

    def _abort_sums(self) -> None:
        """Abort the backend, which else waits on for failed ranks: it learns of no failure but its own."""
        with contextlib.suppress(RuntimeError):
            (self._process_group or dist.distributed_c10d._get_default_group()).abort()


def _on_host(part: Tensor) -> Tensor:
    if part.device.type == "cpu":
        return part
    on_host = _host_memory(part)
    on_host.copy_(part)
    return on_host


def _host_memory(part: Tensor) -> Tensor:
    """Allocate memory of the size of ``part``; a GPU copies from and to pinned memory several times as fast."""
    return torch.empty(part.shape, dtype=part.dtype, pin_memory=part.is_cuda)
