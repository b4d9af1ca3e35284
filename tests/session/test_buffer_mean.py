"""Float buffers under local steps: where a round ends they are the mean over ranks, of those that make sense."""

from __future__ import annotations

import pytest
import torch
from rank_pool import RankPool
from test_local_updates import SIZE, attach, backward, batch_of, plan_of
from torch import Tensor, nn


def with_batch_norm(rank: int, size: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model.register_buffer("constant", torch.tensor([0.1, 1 / 3]))
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.01), plan_of("0.5/all-gather", 2))
    for number in range(4):
        backward(model, number, rank)
        session.step()
    session.close()
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def test_running_statistics_are_averaged_where_ranks_meet(rank_pool: RankPool) -> None:
    first, *others = rank_pool.run_in_process_group(SIZE, with_batch_norm)
    assert first["1.running_mean"].abs().sum() > 0
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(first["constant"], torch.tensor([0.1, 1 / 3])), "what is alike keeps its bits"


def with_spoiled_batches(rank: int, size: int, spoiled: list[int]) -> list[dict[str, Tensor]]:
    """A round, in the last step of which some ranks' batches are not finite; the buffers before its end, and after."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.01), plan_of("0.5/all-gather", 2))
    seen = []
    for number in range(2):
        x = batch_of(number, rank) * (float("nan") if number and rank in spoiled else 1.0)
        model(x).square().mean().backward()
        if number:
            seen.append({name: buffer.clone() for name, buffer in model.named_buffers()})
        session.step()
    seen.append({name: buffer.clone() for name, buffer in model.named_buffers()})
    session.close()
    return seen


@pytest.mark.parametrize("spoiled", [[1], [0, 2], [0, 1, 2]])
def test_statistics_that_are_not_finite_are_left_out_of_the_mean(rank_pool: RankPool, spoiled: list[int]) -> None:
    """One rank's bad batch once spoiled them on all ranks, for good."""
    results = rank_pool.run_in_process_group(SIZE, with_spoiled_batches, spoiled)
    finite = [before for rank, (before, _) in enumerate(results) if rank not in spoiled]
    for name in ("1.running_mean", "1.running_var"):
        for before, after in results:
            if finite:
                mean = torch.stack([each[name] for each in finite]).mean(dim=0)
                torch.testing.assert_close(after[name], mean)
                assert torch.equal(after[name], results[0][1][name])
            else:
                assert torch.equal(after[name].isnan(), before[name].isnan())
