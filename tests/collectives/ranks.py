"""Real processes, joined once by sockets over loopback in groups of every size, that exchange what they are told."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from trimtab import collectives, sparsify
from trimtab.collectives import index_code
from trimtab.collectives.group import Group
from trimtab.kernels.warm_up import warm_up
from trimtab.sparsify.base import Selected, Selector

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12)
SECONDS_TO_ANSWER = 60.0


class Wandering(Selector):
    """Selects any number of elements from 1 to n, wherever it likes, and differently on every rank."""

    name = "wandering"

    def __init__(self, seed: int) -> None:
        self._random = torch.Generator().manual_seed(seed)

    def compress(self, grad, residual, next_residual, segments, k, start=0) -> Selected:
        torch.add(grad, residual, out=next_residual)
        before = next_residual.double().square().sum().item()
        chosen = torch.rand(grad.numel(), generator=self._random) < torch.rand(1, generator=self._random)
        chosen[torch.randint(grad.numel(), (1,), generator=self._random)] = True
        indices = chosen.nonzero().flatten()
        values = next_residual[indices]
        next_residual[indices] = 0
        after = next_residual.double().square().sum().item()
        return Selected(indices.to(torch.int32), values, before, after)


@dataclass(frozen=True)
class Case:
    """One exchange, the same on every rank but for the random gradients."""

    scheme: str
    segments: tuple[int, ...]
    k: tuple[int, ...]
    seed: int = 0
    step: int = 0
    note_length: int | None = None
    in_place: bool = False
    chunk_bytes: int = 1 << 19
    sparsifier: str = "topk"


@dataclass(frozen=True)
class Outcome:
    """What one rank had before and after a case."""

    acc: Tensor
    update: Tensor
    residual: Tensor
    note: Tensor | None
    exchanged: collectives.Exchanged
    messages_sent: int


def run_case(group: Group, case: Case) -> Outcome:
    """Exchange random gradients and residuals of this rank's own."""
    random = torch.Generator().manual_seed(1000 * case.seed + group.rank)
    grad, residual = torch.randn(2, case.segments[-1], generator=random).unbind()
    note = None if case.note_length is None else torch.randn(case.note_length, generator=random)
    acc = grad + residual
    next_residual = torch.full_like(grad, torch.nan)
    out = grad if case.in_place else torch.full_like(grad, torch.nan)
    selector = Wandering(case.seed + group.rank) if case.sparsifier == "wandering" else sparsify.create(case.sparsifier)
    group.transport.chunk_bytes = case.chunk_bytes
    exchange = collectives.Exchange(
        grad,
        residual,
        next_residual,
        out,
        case.segments,
        case.k,
        case.step,
        note=None if note is None else lambda before, after: note,
    )
    messages = group.num_messages
    exchanged = collectives.create(case.scheme, group).exchange(exchange, selector).wait(SECONDS_TO_ANSWER)
    return Outcome(acc, out, next_residual, note, exchanged, group.num_messages - messages)


def _serve(rank: int, size: int, store: str, group_sizes: tuple[int, ...], deadline: float, connection: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    groups = {}
    for group_size in group_sizes:
        members = dist.new_group(list(range(group_size)))
        if rank < group_size:
            groups[group_size] = Group.connect(members, deadline)
    connection.send((True, "joined"))
    while (job := connection.recv()) is not None:
        function, group_size, arguments = job
        try:
            connection.send((True, function(groups[group_size], *arguments)))
        except BaseException as error:
            connection.send((False, (type(error), str(error), getattr(error, "peer", None), traceback.format_exc())))


class Ranks:
    """As many processes as the largest group; each belongs to every group that is large enough to hold it."""

    def __init__(self, group_sizes: tuple[int, ...], deadline: float = 30.0) -> None:
        warm_up(torch.device("cpu"))  # compiled here and kept on disk, not by twelve processes at once
        index_code.warm_up()
        context = get_context("forkserver")  # the server imports torch once, for all
        context.set_forkserver_preload(["torch", "torch.distributed", "trimtab.collectives", "trimtab.sparsify"])
        size = max(group_sizes)
        self._folder = tempfile.TemporaryDirectory()
        self.processes, self._connections = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            arguments = (rank, size, f"{self._folder.name}/store", group_sizes, deadline, theirs)
            self.processes.append(context.Process(target=_serve, args=arguments, daemon=True))
            self.processes[-1].start()
            theirs.close()
            self._connections.append(ours)
        for rank in range(size):
            self.answer(rank)

    def tell(self, rank: int, function: Callable[..., Any], size: int, *arguments: Any) -> None:
        """Have one rank begin ``function(group of that size, *arguments)``."""
        self._connections[rank].send((function, size, arguments))

    def answer(self, rank: int) -> Any:
        """What the rank's function returned; raises `RankError` with what it raised."""
        assert self._connections[rank].poll(SECONDS_TO_ANSWER), f"rank {rank} hangs"
        succeeded, value = self._connections[rank].recv()
        if not succeeded:
            raise RankError(*value)
        return value

    def run(self, size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The answers of ranks 0 .. ``size - 1``."""
        for rank in range(size):
            self.tell(rank, function, size, *arguments)
        return [self.answer(rank) for rank in range(size)]

    def close(self) -> None:
        """End every process."""
        for process in self.processes:
            process.kill()
            process.join()
        self._folder.cleanup()


class RankError(Exception):
    """What a rank raised."""

    def __init__(self, kind: type[BaseException], message: str, peer: int | None, trace: str) -> None:
        super().__init__(trace)
        self.kind, self.message, self.peer = kind, message, peer
