"""VAR-Topk elects the rank with the largest variance, gradient or selection, and only the elected one selects."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from kit.rank_threads import RankThreads
from trimtab import collectives
from trimtab.collectives import Exchange
from trimtab.sparsifiers.topk import TopK
from trimtab.transport.group import Group

NUM_ELEMENTS = 400


class Counting(TopK):
    """Counts its selections."""

    def __init__(self) -> None:
        self.num_selections = 0

    def compress(self, *arguments, **named):
        self.num_selections += 1
        return super().compress(*arguments, **named)

    def take(self, *arguments):
        self.num_selections += 1
        return super().take(*arguments)


def of_rank(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradient and residual: rank 0 has the largest gradient, 1 the largest selection, 2 the largest variance.

    Rank 3 has the largest norm of both together: a mean that is far from zero is no variance.
    """
    random = torch.Generator().manual_seed(rank)
    normal = torch.randn(NUM_ELEMENTS, generator=random)
    zeros = torch.zeros(NUM_ELEMENTS)
    if rank == 0:
        return 50 * normal, -50 * normal + 0.1 * torch.randn(NUM_ELEMENTS, generator=random)
    if rank == 1:
        return zeros.index_fill(0, torch.tensor([7]), 60.0), zeros
    if rank == 2:
        return 4 * normal, zeros
    return zeros + 5.0, zeros


def exchange(group: Group, scheme: str, segments: tuple[int, ...]) -> tuple[int, torch.Tensor]:
    grad, residual = of_rank(group.rank)
    k = [4] * (len(segments) - 1)
    selector, out = Counting(), torch.empty(NUM_ELEMENTS)
    asked = Exchange(grad, residual, torch.empty(NUM_ELEMENTS), out, segments, k, step=0)
    exchanged = collectives.create(scheme, group).exchange(asked, selector).wait(60)
    assert exchanged.sent is not None
    return selector.num_selections, exchanged.sent


@pytest.mark.parametrize("shape", ["ring", "tree"])
@pytest.mark.parametrize("segments", [(0, NUM_ELEMENTS), (0, 100, 100, NUM_ELEMENTS)], ids=["bucket", "tensors"])
@pytest.mark.parametrize(("by", "leader"), [("", 2), (":by=variance", 2), (":by=gradient", 0), (":by=selection", 1)])
def test_the_leader_is_the_one_with_the_largest(rank_threads: RankThreads, shape, segments, by, leader):
    outcomes = rank_threads.run(4, exchange, f"artopk-var-{shape}{by}", segments)
    acc = sum(of_rank(leader))
    own = [first + torch.topk(acc[first:end].abs(), 4).indices for first, end in pairwise(segments) if end > first]
    expected = torch.cat(own).sort().values.to(torch.int32)
    if by != ":by=selection":  # equals at the boundary of a spike: any of its zeros may be sent
        assert all(torch.equal(sent, expected) for _, sent in outcomes)
    else:
        assert all(7 in sent for _, sent in outcomes)
    num_selecting = sum(num > 0 for num, _ in outcomes)
    assert num_selecting == (4 if by == ":by=selection" else 1)
