"""The pool of ranks keeps a process group between calls, and makes another where that one does not serve."""

import os

import torch
import torch.distributed as dist
from kit.rank_pool import RankPool


def sum_of_ranks(rank: int, size: int, destroys: bool = False) -> tuple[float, int, int]:
    """The sum by the process group, and what tells apart processes and groups."""
    summed, group = torch.tensor([float(rank)]), id(dist.group.WORLD)
    dist.all_reduce(summed)
    if destroys:
        dist.destroy_process_group()
    return summed.item(), os.getpid(), group


def test_a_process_group_is_kept_until_its_size_or_its_end(rank_pool: RankPool) -> None:
    first, again, larger, smaller = (rank_pool.run_in_process_group(size, sum_of_ranks) for size in (2, 2, 3, 2))
    assert [each[0] for each in (*first, *again, *larger, *smaller)] == [1, 1, 1, 1, 3, 3, 3, 1, 1]
    assert first == again, "the same processes, in the same group"
    rank_pool.run_in_process_group(2, sum_of_ranks, True)
    assert [each[0] for each in rank_pool.run_in_process_group(2, sum_of_ranks)] == [1, 1]
