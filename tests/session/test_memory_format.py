"""A model whose elements lie in another order in memory (channels last) trains what it trains in the usual one.

torch's fused optimizers step wrongly, and say nothing, where a gradient lies in another order than its parameter.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kit.rank_pool import RankError, RankPool
from kit.training.held_back import residual_of
from torch import Tensor, nn
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.model_checks import check_models_are_alike
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group
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


def kept(rank: int, size: int, folder: Path) -> tuple[dict[str, Tensor], Tensor]:
    """The weights, and what this rank holds back, float32 [n]."""
    model = model_of(torch.channels_last)
    own = torch.optim.SGD(model.parameters(), lr=1e-2)
    plan = Plan.parse("0.1/all-gather")
    session = Session(model, own, group=Group.connect(deadline=30), plan=plan, recorder=Recorder(None))
    model(torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(rank))).square().mean().backward()
    session.step()
    session.save_exchange(folder)
    session.close()
    return model.state_dict(), residual_of(session)


def taken_over(rank: int, size: int, folder: Path, weights: dict[str, Tensor]) -> Tensor:
    model = model_of(torch.channels_last)
    model.load_state_dict(weights)
    own = torch.optim.SGD(model.parameters(), lr=1e-2)
    plan = Plan.parse("0.1/all-gather")
    session = Session(model, own, group=Group.connect(deadline=30), plan=plan, recorder=Recorder(None))
    session.load_exchange(folder)
    held = residual_of(session)
    model(torch.randn(4, 3, 8, 8)).square().mean().backward()
    session.step()
    session.close()
    return held


def test_another_number_of_ranks_takes_over_what_was_held_back(rank_pool: RankPool, tmp_path: Path) -> None:
    before = rank_pool.run_in_process_group(3, kept, tmp_path)
    after = rank_pool.run_in_process_group(2, taken_over, tmp_path, before[0][0])
    mean = torch.stack([held for _, held in before]).mean(0)
    assert mean.any()
    torch.testing.assert_close(torch.stack(after).mean(0), mean, rtol=1e-5, atol=1e-7)


def with_another_format_on_rank_1(rank: int, size: int) -> None:
    group = Group.connect(deadline=30)
    try:
        check_models_are_alike(group, model_of(torch.channels_last if rank else torch.contiguous_format))
    finally:
        group.close()


def test_ranks_that_differ_in_it_are_refused(rank_pool: RankPool) -> None:
    with pytest.raises(RankError, match=r"model: differs between ranks: rank 1 has 0.weight .* strides"):
        rank_pool.run_in_process_group(2, with_another_format_on_rank_1)


def test_a_change_of_it_after_attach_is_refused() -> None:
    model = model_of(torch.contiguous_format)
    flat_buffers = FlatBuffers(list(model.named_parameters()))
    model.to(memory_format=torch.channels_last)
    index = flat_buffers.names.index("0.weight")
    with pytest.raises(UserError, match=r"model parameter 0\.weight: has changed its memory format"):
        flat_buffers.gather(index)


def test_what_is_kept_of_an_arena_names_the_order() -> None:
    flat_buffers = FlatBuffers(list(model_of(torch.channels_last).named_parameters()))
    assert ["0.weight", 64 * 27, [27, 1, 9, 3]] in flat_buffers.tensors
    assert ["6.bias", 4] in flat_buffers.tensors
