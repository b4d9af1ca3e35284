"""In a step that has settled no exchange takes new memory of its buffer's size, nor of a good part of it."""

from __future__ import annotations

import tracemalloc
from threading import Barrier
from typing import Any

import pytest
import torch
from on_ranks import Member, on_ranks, run
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from trimtab import sparsifiers
from trimtab.collectives.base import Exchange
from trimtab.sparsifiers.base import Sent
from trimtab_api.catalogue import COLLECTIVES, DENSE_COLLECTIVES

SIZE, N, K = 4, 1_000_000, 10_000
WARM_UP, STEPS = 4, 7
#: What an exchange of 1% may take at once, of the buffer's 4 N bytes: what all ranks selected, and room to select in.
MOST = 4 * N // 8


class Allocations(TorchDispatchMode):
    """The most bytes that one operation of torch takes anew on this thread, and which does."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self.of = 0, ""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in given:
                num_bytes = leaf.untyped_storage().nbytes()
                if num_bytes > self.most:
                    self.most, self.of = num_bytes, str(function)
        return result


def steps(member: Member, collective: str, settled: Barrier) -> tuple[int, str]:
    """The most that one operation takes once thresholds and regions have ``settled`` on all ranks."""
    scheme = member.make(collective)
    member.transport.chunk_bytes = MOST // 2  # else this buffer would be a few chunks, of which each is received anew
    selector = None if collective in DENSE_COLLECTIVES else sparsifiers.create("tracked")
    random = torch.Generator().manual_seed(member.rank)
    grads = torch.randn(3, N, generator=random)
    residual, next_residual, out = torch.zeros(N), torch.zeros(N), torch.zeros(N)
    with Allocations() as allocations:
        for step in range(STEPS):
            if step == WARM_UP:
                settled.wait(60)
                allocations.most = 0
            exchange = Exchange(grads[step % 3], residual, next_residual, out, (0, N), (K,), step)
            exchanged = run(scheme, exchange, selector)
            scheme.commit()
            if selector is not None:
                selector.commit([Sent(0, N, exchanged.sent)])
            residual, next_residual = next_residual, residual
    return allocations.most, allocations.of


@pytest.mark.parametrize("collective", [*COLLECTIVES, "all-gather:rounds=doubling", "spardl:teams=2", "spardl:teams=4"])
def test_no_exchange_takes_new_memory_of_its_buffers_size(collective: str) -> None:
    settled = Barrier(SIZE, action=tracemalloc.start)  # which counts numpy's arrays
    try:
        found = on_ranks(SIZE, steps, collective, settled)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(most for most, _ in found) < MOST, max(found)
    assert peak < SIZE * MOST


def test_what_is_taken_is_seen() -> None:
    with Allocations() as allocations:
        vector = torch.zeros(1000)
        vector.view(10, 100).mul_(2)
        assert allocations.most == 4000
        (vector + 1).double()
    assert allocations.most == 8000
