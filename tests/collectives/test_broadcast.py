"""Rank 0's tensors on every rank: weights and buffers at the start, optimizers' state where it has no mean."""

from __future__ import annotations

import torch
from rank_pool import RankPool
from torch import Tensor
from trimtab.broadcast import broadcast_tensor, broadcast_tensors
from trimtab.collectives.group import Group


def together(group: Group) -> tuple[list[Tensor], int, int]:
    """What a rank has after it, and messages that this took it, and one tensor."""
    random = torch.Generator().manual_seed(group.rank)
    tensors = [torch.randn(size, generator=random) for size in ((3,), (), (0,), (2, 2))]
    tensors += [torch.randint(9, (3,), generator=random, dtype=torch.uint8), tensors[-1].t().double()]
    before = group.num_messages
    broadcast_tensors(group, tensors)
    of_all, before = group.num_messages - before, group.num_messages
    broadcast_tensor(group, tensors[0])
    return tensors, of_all, group.num_messages - before


def test_small_tensors_of_any_type_cross_in_one_message(rank_pool: RankPool) -> None:
    ranks = rank_pool.run(3, together)
    for tensors, of_all, of_one in ranks:
        assert all(torch.equal(mine, its) for mine, its in zip(ranks[0][0], tensors, strict=True))
        assert of_all == of_one


def in_order(group: Group) -> list[Tensor]:
    tensors = [torch.full((2, 3, 2, 2), float(group.rank)).to(memory_format=torch.channels_last), torch.ones(2)]
    tensors[0].mul_(torch.arange(12.0).view(1, 3, 2, 2) + 1)
    if group.rank == 0:
        tensors[0] += torch.arange(24.0).view(2, 3, 2, 2)
    broadcast_tensors(group, tensors)
    return tensors


def test_tensors_that_lie_in_another_order_keep_it(rank_pool: RankPool) -> None:
    for own, _ in rank_pool.run(2, in_order):
        assert torch.equal(own, torch.arange(24.0).view(2, 3, 2, 2))
        assert own.is_contiguous(memory_format=torch.channels_last)
