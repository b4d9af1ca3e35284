"""A model whose elements lie in another order in memory (channels last) trains what it trains in the usual one.

torch's fused optimizers step wrongly, and say nothing, where a gradient lies in another order than its parameter.
"""

from __future__ import annotations

import pytest
import torch
from rank_pool import RankError, RankPool
from torch import Tensor, nn
from trimtab.collectives.group import Group
from trimtab.engine.arena import Arena
from trimtab.engine.same_model import check_models_are_alike
from trimtab.plan import Plan
from trimtab.records.recorder import Recorder
from trimtab.session import Session
from trimtab_api.errors import UserError

STEPS = 4


def model_of(memory_format: torch.memory_format) -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 256, 3), nn.ReLU(), nn.Conv2d(256, 8, 1), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(8 * 4 * 4, 4)).to(memory_format=memory_format)


def trained(rank: int, size: int, plan: str, optimizer: str, memory_format: torch.memory_format) -> Tensor:
    model = model_of(memory_format)
    own = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-2, fused=True)
    session = Session(model, own, group=Group.connect(deadline=30), plan=Plan.parse(plan), recorder=Recorder(None))
    draw = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        images = torch.randn(4, 3, 8, 8, generator=draw).to(memory_format=memory_format)
        model(images).square().mean().backward()
        session.step()
    session.close()
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("plan", ["dense", "0.1/all-gather/sparsifier=topk", "dense/source=update:steps=2"])
def test_channels_last_trains_the_same(rank_pool: RankPool, plan: str, optimizer: str) -> None:
    usual, last = (
        rank_pool.run_in_process_group(2, trained, plan, optimizer, each)
        for each in (torch.contiguous_format, torch.channels_last)
    )
    assert torch.equal(last[0], last[1])
    torch.testing.assert_close(last[0], usual[0], rtol=0, atol=2e-3)  # wrong steps are 0.1 away


def with_another_format_on_rank_1(rank: int, size: int) -> None:
    group = Group.connect(deadline=30)
    try:
        check_models_are_alike(group, model_of(torch.channels_last if rank else torch.contiguous_format))
    finally:
        group.close()


def test_ranks_that_differ_in_it_are_refused(rank_pool: RankPool) -> None:
    with pytest.raises(RankError, match=r"model: rank 1 has built another than rank 0 \(0.weight .* strides"):
        rank_pool.run_in_process_group(2, with_another_format_on_rank_1)


def test_a_change_of_it_after_attach_is_refused() -> None:
    model = model_of(torch.contiguous_format)
    arena = Arena(list(model.named_parameters()))
    model.to(memory_format=torch.channels_last)
    index = arena.names.index("0.weight")
    with pytest.raises(UserError, match=r"model parameter 0\.weight: has changed its memory format"):
        arena.gather(index)


def test_what_is_kept_of_an_arena_names_the_order() -> None:
    arena = Arena(list(model_of(torch.channels_last).named_parameters()))
    assert ["0.weight", 64 * 27, [27, 1, 9, 3]] in arena.tensors
    assert ["6.bias", 4] in arena.tensors
