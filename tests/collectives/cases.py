"""One exchange as data, so that every rank of a pool can be told of it; and what came of it there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from trimtab import collectives, sparsifiers
from trimtab.sparsifiers.base import Selected, Selector
from trimtab.transport.group import Group

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12)
#: As many ranks as a check before a commit waits for.
FEW = tuple(size for size in SIZES if size <= 6)
MANY = tuple(size for size in SIZES if size > 6)
#: Of ranks that are processes, for a test's parameters: a pair, a power of two, one that is none; and many.
WIRED = (2, 3, 4, *(pytest.param(size, marks=pytest.mark.full) for size in MANY))
SECONDS_TO_ANSWER = 60.0
#: Gradients that selection by magnitude finds hard, by name: of n elements, random ones given.
GRADIENTS = {
    "normal": lambda normal: normal,
    "all equal": torch.ones_like,
    "one spike": lambda normal: torch.zeros_like(normal).index_fill_(-1, torch.tensor([normal.shape[-1] // 2]), 1e6),
    "zeros": torch.zeros_like,
    "denormals": lambda normal: normal * 1e-40,
    "one layer a million times larger": lambda normal: torch.cat(
        [part * scale for part, scale in zip(normal.tensor_split(5, dim=-1), (1, 1, 1e6, 1, 1), strict=True)], dim=-1
    ),
}


class Wandering(Selector):
    """Selects any number of elements from 1 to n, wherever it likes, and differently on every rank."""

    name = "wandering"

    def __init__(self, seed: int) -> None:
        self._random = torch.Generator().manual_seed(seed)

    def take(self, acc, k, key) -> Selected:
        before = acc.double().square().sum().item()
        chosen = torch.rand(acc.numel(), generator=self._random) < torch.rand(1, generator=self._random)
        chosen[torch.randint(acc.numel(), (1,), generator=self._random)] = True
        indices = chosen.nonzero().flatten()
        values = acc[indices]
        acc[indices] = 0
        return Selected(indices.to(torch.int32), values, before, acc.double().square().sum().item())

    def compress(self, grad, residual, next_residual, segments, k, start=0) -> Selected:
        torch.add(grad, residual, out=next_residual)
        return self.take(next_residual, 0, (start, grad.numel()))


@dataclass(frozen=True)
class Case:
    """One exchange, the same on every rank but for the random gradients."""

    scheme: str
    segments: tuple[int, ...]
    k: tuple[int, ...]
    seed: int = 0
    step: int = 0
    vote_length: int | None = None
    in_place: bool = False
    chunk_bytes: int = 1 << 19
    sparsifier: str = "topk"
    gradient: str = "normal"
    """Of `GRADIENTS`."""
    device: str = "cpu"


@dataclass(frozen=True)
class Outcome:
    """What one rank had before and after a case."""

    acc: Tensor
    update: Tensor
    residual: Tensor
    vote: Tensor | None
    exchanged: collectives.Exchanged
    messages_sent: int

    def on_cpu(self) -> Outcome:
        """The same, to be told to a process without a GPU."""
        vote = None if self.vote is None else self.vote.cpu()
        sent = None if self.exchanged.sent is None else self.exchanged.sent.cpu()
        exchanged = replace(self.exchanged, sent=sent)
        return replace(
            self,
            acc=self.acc.cpu(),
            update=self.update.cpu(),
            residual=self.residual.cpu(),
            vote=vote,
            exchanged=exchanged,
        )


def run_case(group: Group, case: Case) -> Outcome:
    """Exchange random gradients and residuals of this rank's own."""
    random = torch.Generator().manual_seed(1000 * case.seed + group.rank)
    drawn = GRADIENTS[case.gradient](torch.randn(2, case.segments[-1], generator=random))
    grad, residual = drawn.to(case.device).unbind()
    vote = None if case.vote_length is None else torch.randn(case.vote_length, generator=random)
    acc = grad + residual
    next_residual = torch.full_like(grad, torch.nan)
    out = grad if case.in_place else torch.full_like(grad, torch.nan)
    selector = (
        Wandering(case.seed + group.rank) if case.sparsifier == "wandering" else sparsifiers.create(case.sparsifier)
    )
    group.transport.chunk_bytes = case.chunk_bytes
    exchange = collectives.Exchange(
        grad,
        residual,
        next_residual,
        out,
        case.segments,
        case.k,
        case.step,
    )
    messages = group.num_messages
    handle = collectives.create(case.scheme, group).exchange(exchange, selector, None if vote is None else vote.clone)
    exchanged = handle.wait(SECONDS_TO_ANSWER)
    return Outcome(acc, out, next_residual, vote, exchanged, group.num_messages - messages)
