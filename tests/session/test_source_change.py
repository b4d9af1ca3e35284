"""From gradients to updates of local steps and back: what one source has held back is not lost to the other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.engines import engine_of
from kit.training.held_back import residual_of
from kit.training.local_steps import plan_of, take_step
from kit.training.regression import SIZE, backward, loss_of, model_of, optimizer_of
from kit.training.scripted_control import AdoptsAt
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.plan.plan import Plan


def states_of(optimizer: torch.optim.Optimizer, model: nn.Module) -> Tensor:
    kept = (optimizer.state[parameter] for parameter in model.parameters())
    return torch.cat([state[name].float().view(-1) for state in kept for name in sorted(state)])


def change_sources(rank: int, size: int, optimizer: str, plans: dict[int, Plan], num_steps: int) -> list[Any]:
    """After each step: the plan, the weights, the optimizer's state."""
    model = model_of()
    stepping = optimizer_of(model, optimizer)
    options = {"control_client": AdoptsAt(plans)} if rank == 0 else {}
    session = attach(model, stepping, Plan.parse("0.1/all-gather"), **options)
    seen = []
    for number in range(num_steps):
        backward(model, number, rank)
        session.step()
        seen.append((session.plan.source, weights_of(model), states_of(stepping, model)))
    session.close()
    return seen


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_ranks_are_alike_to_the_last_bit_whatever_sources_follow_each_other(
    rank_pool: RankPool, optimizer: str
) -> None:
    plans = {
        3: plan_of("0.1/all-gather", 3),
        5: Plan.parse("0.1/artopk-star-ring"),
        9: plan_of("dense", 2),
        11: plan_of("0.2/all-gather", 4),
        13: Plan.parse("dense"),
    }
    first, *others = rank_pool.run_in_process_group(SIZE, change_sources, optimizer, plans, 40)
    sources = [source for source, _, _ in first]
    assert len(set(sources)) == 4
    assert sources[-1] == "gradient"
    for other in others:
        for (source, weights, state), (_, its_weights, its_state) in zip(first, other, strict=True):
            if source == "gradient":
                assert torch.equal(weights, its_weights)
                assert torch.equal(state, its_state), "under gradients the optimizer's state is alike as well"


def what_a_change_carries(rank: int, size: int, before: Plan, after: Plan) -> dict[str, Tensor]:
    """Constant gradients, then another source: what was made, and what reached the weights."""
    model = nn.Linear(10, 5, bias=False)
    nn.init.zeros_(model.weight)
    options = {"control_client": AdoptsAt({5: after})} if rank == 0 else {}
    session = attach(model, torch.optim.SGD(model.parameters(), lr=1.0), before, **options)
    random = torch.Generator().manual_seed(rank)
    total = torch.zeros(50)
    while session.plan.source == before.source:
        gradient = torch.randn(5, 10, generator=random)
        (model.weight * gradient).sum().backward()
        total += gradient.view(-1)
        session.step()
    result = {"made": total, "applied": -weights_of(model), "residual": residual_of(session)}
    session.close()
    return result


@pytest.mark.parametrize("to_updates", [True, False])
def test_all_that_one_source_has_held_back_is_applied_or_held_back_by_the_other(
    rank_pool: RankPool, to_updates: bool
) -> None:
    plans = Plan.parse("0.05/all-gather"), plan_of("0.05/all-gather", 2)
    before, after = plans if to_updates else plans[::-1]
    results = rank_pool.run_in_process_group(SIZE, what_a_change_carries, before, after)
    made, held_back = (sum(each[name] for each in results) / SIZE for name in ("made", "residual"))
    for result in results:
        assert bool(result["residual"].any()) is to_updates, "updates are sent whole"
        assert torch.equal(result["applied"], results[0]["applied"])
        torch.testing.assert_close(result["applied"] + held_back, made)


def changed_to_updates(rank: int, size: int, name: str) -> dict[str, Any]:
    """By parameter: what is held back of updates, and what the rank's optimizer makes of what was held back before."""
    model = model_of()
    optimizer = optimizer_of(model, name)
    session = attach(model, optimizer, Plan.parse("0.05/all-gather"))
    for number in range(6):
        backward(model, number, rank)
        session.step()
    engine, weights = engine_of(session), weights_of(model)

    of_gradients, num_bytes = session.debug_state().residual, engine.group.transport.num_bytes
    twin = model_of()
    twin.load_state_dict(model.state_dict())
    its_optimizer = optimizer_of(twin, name)
    its_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for parameter_name, parameter in twin.named_parameters():
        part = of_gradients[parameter_name]
        parameter.grad = part if part.any() else None  # momentum moves nothing by itself
    its_optimizer.step()
    engine.plans.adopt(plan_of("0.05/all-gather", 2), 6)
    session.close()
    return {
        "of gradients": of_gradients,
        "of updates": session.debug_state().residual,
        "made": {n: p.detach() - twin.get_parameter(n).detach() for n, p in model.named_parameters()},
        "weights": (weights, weights_of(model)),
        "states": (states_of(optimizer, model), states_of(its_optimizer, twin)),
        "bytes": engine.group.transport.num_bytes - num_bytes,
    }


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_what_is_held_back_of_gradients_becomes_an_update_of_the_ranks_own_optimizer(
    rank_pool: RankPool, optimizer: str
) -> None:
    for told in rank_pool.run_in_process_group(SIZE, changed_to_updates, optimizer):
        assert any(part.any() for part in told["of gradients"].values())
        assert told["of updates"].keys() == told["made"].keys()
        for name, update in told["made"].items():
            assert torch.equal(told["of updates"][name], update), name
        before, after = told["weights"]
        assert torch.equal(before, after), "alike on all ranks, as they were"
        ours, twins = told["states"]
        assert torch.equal(ours, twins)
        assert told["bytes"] == 0, "ranks exchange nothing"


def changed_within_a_scalers_step(rank: int, size: int, fused: bool, own: bool) -> tuple[Tensor, Tensor]:
    """What is held back of updates once gradients have given way to them, and the optimizer's state."""
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    options = {"control_client": AdoptsAt({3: plan_of("0.1/all-gather", 2)})} if rank == 0 else {}
    session = attach(model, optimizer, Plan.parse("0.1/all-gather"), scale=LossScale(scaler), **options)
    number = 0
    while session.plan.source == "gradient":
        scaler.scale(loss_of(model, number, rank)).backward()
        take_step(session, optimizer, scaler if own else None)
        number += 1
    result = residual_of(session), states_of(optimizer, model)
    session.close()
    return result


def test_a_fused_optimizer_makes_an_update_of_all_that_is_held_back_within_its_scalers_step(
    rank_pool: RankPool,
) -> None:
    """It once divided that by the loss scale, which its scaler had told it of the step's own gradients."""
    plain = rank_pool.run_in_process_group(2, changed_within_a_scalers_step, False, False)
    fused = rank_pool.run_in_process_group(2, changed_within_a_scalers_step, True, True)
    for (residual, state), (its_residual, its_state) in zip(plain, fused, strict=True):
        assert residual.norm() > 0.01
        torch.testing.assert_close(its_residual, residual)
        torch.testing.assert_close(its_state, state)
