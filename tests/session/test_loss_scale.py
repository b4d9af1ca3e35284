"""A GradScaler beside the session: what its recipe says works on one process and on many, clipping included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.held_back import residual_of
from kit.training.regression import loss_of, model_of
from torch import Tensor, nn
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.plan.plan import FusionPlan, Plan, dense_plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.session import Session
from trimtab.transport.group import Group

CLIPPING = ("not at all", "by the recipe", "by synchronize", "by both")


def train(session: Session | None, model: nn.Module, scaler: Any, optimizer: Any, clips: str, rank: int) -> Tensor:
    """Forty steps; the third is not finite on the last rank."""
    for number in range(40):
        loss = loss_of(model, number, rank)
        scaler.scale(loss * float("inf") if number == 3 and rank == 0 else loss).backward()
        if session is not None and clips in ("by synchronize", "by both"):
            session.synchronize()
        if clips == "by the recipe" or (session is None and clips != "not at all"):
            scaler.unscale_(optimizer)
        if clips != "not at all":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if session is None:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        else:
            session.step(loss)
    return torch.cat([parameter.detach().reshape(-1).clone() for parameter in model.parameters()])


def new_scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=4096.0, growth_interval=10)


def attached_to(
    model: nn.Module, optimizer: Any, scaler: torch.amp.GradScaler, group: Group | None, plan: Plan
) -> Session:
    options = SessionOptions(scale=LossScale(scaler))
    return Session(model, optimizer, group=group, plan=plan, recorder=Recorder(None), options=options)


def alone(clips: str, attached: bool) -> tuple[Tensor, float]:
    model = model_of(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = new_scaler()
    session = None
    if attached:
        session = attached_to(model, optimizer, scaler, None, dense_plan())
    return train(session, model, scaler, optimizer, clips, 0), float(scaler.get_scale())


@pytest.mark.parametrize("clips", CLIPPING[:3])
def test_one_process_trains_as_torch_s_recipe_does(clips: str) -> None:
    ours, theirs = alone(clips, attached=True), alone(clips, attached=False)
    assert torch.equal(ours[0], theirs[0])
    assert ours[1] == theirs[1] == 4096 / 2 * 8


def many(rank: int, size: int, plan: str, clips: str) -> tuple[Tensor, float, Tensor, float]:
    model = model_of(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = new_scaler()
    parsed = Plan.parse(plan, FusionPlan((0, 17)))
    session = attached_to(model, optimizer, scaler, Group.connect(), parsed)
    weights = train(session, model, scaler, optimizer, clips, rank)
    residual = residual_of(session)
    loss = float(loss_of(model, 1000, rank))
    session.close()
    return weights, float(scaler.get_scale()), residual, loss


@pytest.mark.pattern("GradScaler", works="`attach(..., scaler=scaler)`")
@pytest.mark.parametrize("plan", ["dense", "0.2/all-gather"])
@pytest.mark.parametrize("clips", CLIPPING[:3])
def test_ranks_train_alike_clip_and_back_off_alike(clips: str, plan: str, rank_pool: RankPool) -> None:
    (weights, scale, residual, loss), *others = rank_pool.run_in_process_group(2, many, plan, clips)
    assert scale == 4096 / 2 * 8
    assert loss < 0.5
    assert float(residual.abs().max()) < 5, "residuals are unscaled"
    for other, other_scale, _, _ in others:
        assert torch.equal(other, weights)
        assert other_scale == scale


def test_many_ranks_of_one_batch_are_one_process(rank_pool: RankPool) -> None:
    """The scale is a power of two, so undoing it loses no bit; two ranks' mean of the same is the same."""
    results = rank_pool.run_in_process_group(2, same_batches)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], alone("by the recipe", attached=False)[0])


def same_batches(rank: int, size: int) -> Tensor:
    model = model_of(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = new_scaler()
    session = attached_to(model, optimizer, scaler, Group.connect(), dense_plan())
    weights = train(session, model, scaler, optimizer, "by the recipe", 0)
    session.close()
    return weights


def test_unscaling_after_synchronize_is_refused_by_torch_itself() -> None:
    model = model_of(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = new_scaler()
    session = attached_to(model, optimizer, scaler, None, dense_plan())
    scaler.scale(loss_of(model, 0, 0)).backward()
    session.synchronize()
    session.synchronize()
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    session.step()
