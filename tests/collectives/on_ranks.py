"""Ranks as threads of one process, joined by queues: for schemes over many steps, and trainings."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from kit.in_process import InProcess
from torch import Tensor
from trimtab import collectives
from trimtab.collectives.base import Collective, Exchange, Exchanged


@dataclass(frozen=True)
class Member:
    """What a scheme asks of its group."""

    rank: int
    size: int
    transport: InProcess

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
    members = [Member(rank, size, InProcess(rank, size, queues)) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        done = [pool.submit(function, member, *arguments) for member in members]
        return [each.result() for each in done]
