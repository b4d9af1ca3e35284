"""Ranks as threads of one process, joined by queues: for schemes over many steps, and trainings."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from trimtab import collectives
from trimtab.collectives.base import Collective, Exchange, Exchanged
from trimtab.collectives.transport import Transport

SECONDS_TO_ANSWER = 30.0


class QueueTransport(Transport):
    """Copies every message into the queue of its two ranks."""

    chunk_bytes = 1 << 19
    is_eager = True

    def __init__(self, rank: int, size: int, queues: dict[tuple[int, int], queue.SimpleQueue[Tensor]]) -> None:
        super().__init__(rank, size)
        self._queues = queues

    def _send(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        flat = [part.detach().reshape(-1).view(torch.uint8) for part in parts]
        self._queues[self.rank, peer].put(torch.cat(flat) if flat else torch.empty(0, dtype=torch.uint8))

    _send_bytes = _send

    def receive(self, peer: int, *parts: Tensor) -> None:
        data = self.receive_bytes(peer)
        for part in parts:
            size = part.numel() * part.element_size()
            part.copy_(data[:size].clone().view(part.dtype).view_as(part))
            data = data[size:]
        assert data.numel() == 0, "the ranks disagree about a size"

    def receive_bytes(self, peer: int) -> Tensor:
        return self._queues[peer, self.rank].get(timeout=SECONDS_TO_ANSWER)

    def flush(self) -> None: ...

    def abort(self, peer: int, reason: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Member:
    """What a scheme asks of its group."""

    rank: int
    size: int
    transport: QueueTransport

    def make(self, scheme: str) -> Collective:
        """One rank's part of a scheme."""
        return collectives.create(scheme, self)  # type: ignore[arg-type]


def run(collective: Collective, exchange: Exchange, selector: Any, vote: Tensor | None = None) -> Exchanged:
    """Exchange one buffer, on the thread of its rank."""
    prepared = collective.prepare(exchange, selector)
    return collective.run(exchange, prepared, collective.group.transport, torch.empty(0) if vote is None else vote)


def on_ranks(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``function(member, *arguments)`` returns on every rank."""
    queues = {(a, b): queue.SimpleQueue[Tensor]() for a in range(size) for b in range(size)}
    members = [Member(rank, size, QueueTransport(rank, size, queues)) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        done = [pool.submit(function, member, *arguments) for member in members]
        return [each.result() for each in done]
