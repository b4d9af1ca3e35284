"""Trials where a batch cannot be given again on some rank, or where ranks take other steps than each other."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.trial_scripts import STEPS, Named, begin, loader, step, weights_of
from torch import Tensor, nn
from torch.utils.data import DataLoader


class Stubborn(collections.UserDict[str, Any]):
    """A batch that cannot be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("it holds a lock")


class StubbornLoader:
    """A loader of such batches on rank 1, and of plain ones elsewhere."""

    def __init__(self, rank: int) -> None:
        self.kind = Stubborn if rank == 1 else dict

    def __len__(self) -> int:
        return 60

    def __iter__(self) -> Iterator[Any]:
        return (self.kind(batch) for batch in DataLoader(Named(torch.randn(480, 8), torch.zeros(480).long()), 8))


def with_stubborn_batches(rank: int, size: int) -> tuple[int, list[list[Any]] | None, Tensor]:
    session, model, _, script = begin(rank, True)
    for batch in session.batches(StubbornLoader(rank)):
        nn.functional.cross_entropy(model(batch["x"]), batch["labels"]).backward()
        session.step()
        if session.steps == STEPS:
            break
    result = int(session.steps), script.reports if script else None, weights_of(model)[:32]
    session.close()
    return result


def test_no_rank_tries_where_one_cannot_replay(rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, with_stubborn_batches)
    assert first[:2] == (STEPS, [[], []]), "told that none ran"
    assert second[0] == STEPS
    assert torch.equal(first[2], second[2])


def leaving_out_a_batch(rank: int, size: int, at: int) -> tuple[int, list[Any] | None, Tensor]:
    """Rank 1 leaves out one batch, without a step: before the trials, or among them."""
    session, model, _, script = begin(rank, True)
    for number, batch in enumerate(session.batches(loader()), 1):
        if rank == 1 and number == at:
            continue
        nn.functional.cross_entropy(model(batch["x"]), batch["labels"]).backward()
        session.step()
        if session.steps == STEPS:
            break
    tried = [[report.num_steps for report in reports] for reports in script.reports] if script else None
    result = int(session.steps), tried, torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    session.close()
    return result


@pytest.mark.parametrize("at", [2, 6], ids=["before the trials", "in a trial"])
def test_a_rank_that_leaves_out_a_batch_tries_with_the_others(at: int, rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, leaving_out_a_batch, at)
    assert first[0] == second[0] == STEPS
    assert first[1] == [[3, 3], [3, 3]]
    assert torch.equal(first[2], second[2])


def stepping_out_of_turn(rank: int, size: int) -> str:
    """Rank 1 leaves its loop in a trial, for another: it trains while rank 0 tries."""
    session, model, _, _ = begin(rank, True)
    try:
        for rounds in (6, 100) if rank == 1 else (100,):
            for number, batch in enumerate(session.batches(loader()), 1):
                step(session, model, batch)
                if number == rounds or session.steps == STEPS:
                    break
    except Exception as error:
        return str(error)
    return ""


def test_a_rank_that_trains_while_another_tries_is_found_out_at_once(rank_pool: RankPool) -> None:
    said = rank_pool.run_in_process_group(2, stepping_out_of_turn)
    assert any("trial 1 where this rank is at" in message or "trial 1" in message for message in said), said
    assert all("the ranks disagree" in message for message in said)
