"""The ranks of a group as threads of one process, for measurements that want every rank's tensors at hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from trimtab import collectives, sparsifiers
from trimtab.plan.plan import Plan, elements_to_send
from trimtab.sparsifiers.base import Sent
from trimtab.transport.base import Transport
from trimtab.transport.group import Group

Queues = dict[tuple[int, int], "SimpleQueue[Tensor]"]


class InProcess(Transport):
    """Messages through queues, copied as they are sent."""

    chunk_bytes = 1 << 19

    def __init__(self, rank: int, size: int, queues: Queues) -> None:
        super().__init__(rank, size)
        self._queues = queues

    def _send(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        data = [torch.empty(0, dtype=torch.uint8), *(part.detach().reshape(-1).view(torch.uint8) for part in parts)]
        self._queues[self.rank, peer].put(torch.cat(data))

    def receive(self, peer: int, *parts: Tensor) -> None:
        message, offset = self.receive_bytes(peer), 0
        for part in parts:
            length = part.numel() * part.element_size()
            part.copy_(message[offset : offset + length].clone().view(part.dtype).view_as(part))
            offset += length

    def receive_bytes(self, peer: int) -> Tensor:
        return self._queues[peer, self.rank].get(timeout=60)

    def flush(self) -> None: ...

    def abort(self, peer: int, reason: str) -> None: ...

    def close(self) -> None: ...


class Ranks:
    """N ranks that exchange one buffer of n elements under a plan, step by step, with error feedback."""

    def __init__(self, plan: Plan, size: int, num_elements: int, hosts: Sequence[Sequence[int]] = ()) -> None:
        """``hosts``: the ranks of each; where none are given, each rank has one of its own."""
        queues: Queues = {(a, b): SimpleQueue() for a in range(size) for b in range(size)}
        self._plan, self._k = plan, elements_to_send(plan.ratio, num_elements)
        self._groups = [Group(InProcess(rank, size, queues)) for rank in range(size)]
        for group in self._groups:
            group.hosts = tuple(map(tuple, hosts)) or group.hosts
        self.schemes = [collectives.create(plan.collective, group) for group in self._groups]
        self.selectors = [None if plan.is_dense else sparsifiers.create(plan.sparsifier) for _ in self._groups]
        self.residuals = [torch.zeros(num_elements) for _ in self._groups]
        self._step = 0

    def close(self) -> None:
        """End the threads."""
        for group in self._groups:
            group.close()

    def state_dict(self) -> dict[str, Any]:
        """All that is carried from step to step; what the sparsifiers carry is not part of it."""
        schemes = [scheme.state_dict() for scheme in self.schemes]
        return {"step": self._step, "schemes": schemes, "residuals": [each.clone() for each in self.residuals]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._step, self.residuals = state["step"], [each.clone() for each in state["residuals"]]
        for scheme, held in zip(self.schemes, state["schemes"], strict=True):
            scheme.load_state_dict(held)

    def exchange(self, grads: Sequence[Tensor], *, commits: bool = True) -> tuple[Tensor, list[collectives.Exchanged]]:
        """Exchange what each rank has, and commit or drop it; the mean update, and what each rank says of it."""
        outs, exchanged = self.exchange_all(grads, commits=commits)
        return outs[0], exchanged

    def exchange_all(
        self, grads: Sequence[Tensor], *, commits: bool = True
    ) -> tuple[list[Tensor], list[collectives.Exchanged]]:
        """The same, with every rank's own copy of the update. Each rank votes for 1 and for its number."""
        following = [torch.empty_like(residual) for residual in self.residuals]
        outs = [torch.empty_like(residual) for residual in self.residuals]
        n = outs[0].numel()
        handles = [
            scheme.exchange(
                collectives.Exchange(grad, residual, next_residual, out, (0, n), (self._k,), self._step),
                selector,
                partial(torch.tensor, [1.0, scheme.group.rank]),
            )
            for scheme, selector, grad, residual, next_residual, out in zip(
                self.schemes, self.selectors, grads, self.residuals, following, outs, strict=True
            )
        ]
        exchanged = [handle.wait(60) for handle in handles]
        if not commits:
            for part in (*self.schemes, *self.selectors):
                if part is not None:
                    part.discard()
            return outs, exchanged
        for scheme, selector, each in zip(self.schemes, self.selectors, exchanged, strict=True):
            scheme.commit()
            if selector is not None:
                selector.commit([Sent(0, n, each.sent)])
        self.residuals, self._step = following, self._step + 1
        return outs, exchanged
