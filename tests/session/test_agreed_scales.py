"""Loss scales under local steps: each rank's scaler sees its own gradients, and where a round ends all are alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.local_steps import plan_of, take_step
from kit.training.regression import SIZE, loss_of, model_of
from kit.training.scripted_control import AdoptsAt
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.plan.plan import Plan

INF = float("inf")
#: Rank 1 leaves the last step of a round out, rank 2 the first of another.
LEFT_OUT = {(1, 1), (6, 2)}


def scaled(rank: int, size: int, factor: float, own: bool) -> list[tuple[str, dict[str, Any], float, Tensor]]:
    """After each step: the source, the scaler's state, the learning rate by torch's recipe, the weights."""
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    grown = {"growth_interval": 5, "growth_factor": 1 / factor, "backoff_factor": factor}
    scaler = GradScaler("cpu", init_scale=1000.0, **grown)
    plans = {3: Plan.parse("0.3/all-gather"), 4: plan_of("0.3/all-gather", 2), 6: Plan.parse("dense")}
    options = {"control_client": AdoptsAt(plans)} if rank == 0 else {}
    session = attach(model, optimizer, plan_of("0.3/all-gather", 2), scale=LossScale(scaler), **options)
    seen = []
    for number in range(16):
        scaler.scale(loss_of(model, number, rank) * (INF if (number, rank) in LEFT_OUT else 1.0)).backward()
        before = scaler.get_scale()
        take_step(session, optimizer, scaler if own else None)
        if scaler.get_scale() >= before:
            schedule.step()
        seen.append((session.plan.source, scaler.state_dict(), optimizer.param_groups[0]["lr"], weights_of(model)))
    session.close()
    return seen


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("factor", [0.5, 0.7])
def test_ranks_scale_alike_after_every_round_and_under_gradients(rank_pool: RankPool, factor: float, own: bool) -> None:
    """They once kept their own scales for good; a factor of 0.7 is no power of two, and rounds."""
    first, *others = rank_pool.run_in_process_group(SIZE, scaled, factor, own)
    assert {source for source, _, _, _ in first} == {"update:steps=2", "gradient"}
    assert first[-1][0] == "gradient"
    assert first[1][1]["scale"] == pytest.approx(1000 * factor), "it falls on all where it fell on one"
    for other in others:
        alike = [torch.equal(mine[-1], its[-1]) for mine, its in zip(first, other, strict=True)]
        assert sum(alike) >= 9, "the ends of rounds, and all under gradients"
        assert all(alike[-4:])
        for (_, state, rate, _), (_, its_state, its_rate, _), is_alike in zip(first, other, alike, strict=True):
            if is_alike:
                assert state == its_state
                assert rate == its_rate, "each has seen the scale fall, and left its scheduler out, as often"


@pytest.mark.parametrize("scale", [8.0, 1000.0])
def test_what_an_update_will_leave_is_known_before_it(scale: float) -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = GradScaler("cpu", init_scale=scale, growth_interval=3, growth_factor=1.9, backoff_factor=0.7)
    known = LossScale(scaler)
    for number in range(12):
        scaler.scale(parameter.sum() * (INF if number in (1, 6) else 1.0)).backward()
        scaler.step(optimizer)
        with known.before_update():
            foreseen = known.own()
        scaler.update()
        optimizer.zero_grad()
        assert known.own() == pytest.approx(foreseen)


def test_a_scale_that_the_script_sets_is_the_script_s() -> None:
    scaler = GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(1))
    known = LossScale(scaler)
    known.watch(lambda: None)
    with known.before_update():
        known.agree([(4.0, 1.0), (8.0, 0.0)])
    scaler.update(16.0)
    assert scaler.get_scale() == 16
    known.agree([(8.0, 0.0), (4.0, 1.0), (4.0, 0.0)])
    assert known.own() == (4.0, 0.0)
    known.release()
