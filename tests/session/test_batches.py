"""A loop over `session.batches`: what is said of it, and what one that is left early leaves behind."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.random_training import make_session, network
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset
from trimtab.plan.plan import Plan


def loader_of(sampler: Any = None) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(40)), 2, sampler=sampler, shuffle=sampler is None)


def saying(rank: int, size: int) -> str:
    session, _, _ = make_session(Plan.parse("dense"), network())
    with contextlib.redirect_stderr(io.StringIO()) as said:
        for loader in (loader_of(), loader_of(), loader_of(SubsetRandomSampler(range(20)))):
            list(session.batches(loader))
        assert list(session.batches([[rank], [rank]], sharded=True)) == [[rank], [rank]]
    session.close()
    return said.getvalue()


def test_rank_0_says_once_of_each_kind_of_loader_what_is_done_with_it(rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, saying)
    assert first.splitlines() == [
        "trimtab: loader: sharded by a DistributedSampler; the batch size is per rank",
        "trimtab: loader: its SubsetRandomSampler draws alike on all ranks: each takes every 2nd sample; "
        "the batch size is per rank",
        "trimtab: loader: taken as it is: the script says that it is sharded already",
    ]
    assert second == ""


def leaving_early(rank: int, size: int) -> list[list[int]]:
    session, _, _ = make_session(Plan.parse("dense"), network())
    loader, loops = loader_of(), []
    for leave_after in (3, 3, 100):
        seen: list[int] = []
        for (batch,) in session.batches(loader):
            seen += batch.tolist()
            if len(seen) == 2 * leave_after:
                break
        loops.append(seen)
    session.close()
    return loops


def test_a_loop_after_one_that_was_left_early_shuffles_anew(rank_pool: RankPool) -> None:
    a, b = rank_pool.run_in_process_group(2, leaving_early)
    for first, second, third in (a, b):
        assert len(first) == len(second) == 6
        assert first != second
        assert third[:6] not in (first, second)
    assert not set(a[1]) & set(b[1]), "the ranks still share one order"
    assert sorted(a[2] + b[2]) == list(range(40))


def evaluating(rank: int, size: int) -> list[float]:
    session, _, _ = make_session(Plan.parse("dense"), network())
    totals = torch.zeros(2)
    for (values,) in session.batches(DataLoader(TensorDataset(torch.arange(40)), 2)):
        totals += torch.tensor([float(values.sum()), len(values)])
    both = session.all_reduce(totals, "sum")
    session.close()
    assert isinstance(both, torch.Tensor)
    return both.tolist()


@pytest.mark.pattern(
    "evaluation over ranks",
    works='`session.batches(loader)`, then `session.all_reduce(totals, "sum")`',
)
def test_ranks_evaluate_a_share_each_and_add_up_what_they_found(rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(2, evaluating) == [[780.0, 40.0]] * 2
