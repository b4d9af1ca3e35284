"""Float buffers under local steps: where a round ends they are the mean over ranks, of those that make sense."""

from __future__ import annotations

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.engines import engine_of
from kit.training.local_steps import plan_of
from kit.training.regression import SIZE, backward, batch_of
from kit.training.sessions import attach
from torch import Tensor, nn
from trimtab.engine.local_sgd.buffer_sync import average_buffers
from trimtab.plan.plan import Plan


def with_batch_norm(rank: int, size: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model.register_buffer("constant", torch.tensor([0.1, 1 / 3]))
    model.register_buffer("precise", torch.tensor([0.1, 1 / 3], dtype=torch.float64))
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
    assert torch.equal(first["precise"], torch.tensor([0.1, 1 / 3], dtype=torch.float64))


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


class Cached(nn.Module):
    """Keeps what it has computed of the longest batch so far, beside a buffer that ranks hold in common."""

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 1)
        self.register_buffer("cache", torch.zeros(0), persistent=persistent)
        self.register_buffer("longest", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > len(self.cache):
            self.cache = torch.arange(len(x)).float().cos()
        self.longest.copy_(torch.tensor(float(len(x))))
        return self.linear(x) + self.cache[: len(x), None]


def with_caches(rank: int, size: int, persistent: bool) -> tuple[Tensor, float]:
    model = Cached(persistent)
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.05), Plan.parse("dense/source=update:steps=2"))
    for number in range(4):
        model(batch_of(number, rank)[: 4 + 3 * rank + number]).square().mean().backward()
        session.step()
    session.close()
    return model.cache, float(model.longest)


@pytest.mark.parametrize("persistent", [False, True])
def test_caches_that_grow_with_what_a_rank_sees_stay_its_own(rank_pool: RankPool, persistent: bool) -> None:
    """They once ended the job on all ranks where a round did."""
    for rank, (cache, longest) in enumerate(rank_pool.run_in_process_group(SIZE, with_caches, persistent)):
        assert torch.equal(cache, torch.arange(7 + 3 * rank).float().cos())
        assert longest == 7 + 3


def with_a_cache_alone(rank: int, size: int) -> Tensor:
    model = nn.Linear(4, 1)
    nn.init.zeros_(model.weight)
    model.register_buffer("kept", torch.full((2,), float(rank)), persistent=False)
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.05), Plan.parse("dense/source=update:steps=2"))
    model.kept.fill_(float(rank))
    group = engine_of(session).group
    num_before = group.num_messages
    average_buffers(model, group)
    assert group.num_messages == num_before, "nothing is sent where there is nothing to average"
    session.close()
    return model.kept


def test_buffers_outside_of_the_model_s_state_are_not_sent(rank_pool: RankPool) -> None:
    assert [each.tolist() for each in rank_pool.run_in_process_group(2, with_a_cache_alone)] == [[0, 0], [1, 1]]
