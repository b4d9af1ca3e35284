"""`Session.debug_state`: what is held is there by parameter, and looking at it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from kit.rank_pool import RankPool
from kit.training import toy_schedules
from kit.training.regression import loss_of, model_of
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from trimtab.engine.debug_state import DebugState
from trimtab.plan.plan import FusionPlan, Plan, dense_plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session

SIZE = 2
#: In backward order: the last parameter first.
NAMES = ["2.bias", "2.weight", "0.bias", "0.weight"]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05)


def steps(session: Session, model: nn.Module, rank: int, count: int, *, looks: bool = False) -> None:
    for number in range(count):
        loss_of(model, number, rank).backward()
        if looks:
            for held in session.debug_state().residual.values():
                held.fill_(7.0)
        session.step()


def looked_at(rank: int, size: int, looks: bool) -> tuple[Tensor, DebugState]:
    model = model_of()
    session = attach(model, sgd(model), "0.1/all-gather")
    steps(session, model, rank, 4, looks=looks)
    seen = session.debug_state()
    session.close()
    return weights_of(model), seen


def test_residuals_are_there_by_parameter_and_a_copy_of_them_changes_nothing(rank_pool: RankPool) -> None:
    (weights, state), _ = rank_pool.run_in_process_group(SIZE, looked_at, False)
    (after_looking, _), _ = rank_pool.run_in_process_group(SIZE, looked_at, True)
    assert list(state.residual) == NAMES
    assert {name: each.shape for name, each in state.residual.items()} == {
        name: parameter.shape for name, parameter in model_of().named_parameters()
    }
    assert any(each.any() for each in state.residual.values())
    assert not state.waiting
    assert not state.arrived
    assert not state.anchor
    assert torch.equal(weights, after_looking)


def phases(rank: int, size: int) -> list[Any]:
    model = model_of()
    session = attach(model, sgd(model), "dense")
    seen = [session.debug_state().phase]
    loss_of(model, 0, rank).backward()
    seen.append(session.debug_state().phase)
    session.step()
    seen.append(session.debug_state().phase)
    session.close()
    return seen


def test_the_phase_tells_a_step_that_is_to_be_taken(rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(SIZE, phases) == [["idle", "exchanged", "idle"]] * SIZE


def delayed(rank: int, size: int) -> DebugState:
    toy_schedules.register()
    model = model_of()
    plan = replace(Plan.parse("dense", FusionPlan((0, 17))), schedule="toy-every-second-later")
    session = attach(model, sgd(model), plan)
    steps(session, model, rank, 1)
    seen = session.debug_state()
    session.close()
    return seen


def test_what_a_schedule_delays_waits_of_the_parameters_of_its_bucket(rank_pool: RankPool) -> None:
    for state in rank_pool.run_in_process_group(SIZE, delayed):
        assert list(state.waiting) == NAMES[2:]
        assert all(each.any() for each in state.waiting.values())


def frozen(rank: int, size: int) -> DebugState:
    model = model_of()
    session = attach(model, sgd(model), "0.1/all-gather")
    steps(session, model, rank, 3)
    model[0].weight.requires_grad_(False)
    steps(session, model, rank, 1)
    seen = session.debug_state()
    session.close()
    return seen


def test_the_residual_of_a_frozen_parameter_is_set_aside(rank_pool: RankPool) -> None:
    for state in rank_pool.run_in_process_group(SIZE, frozen):
        assert list(state.set_aside) == ["0.weight"]
        assert state.set_aside["0.weight"].any()
        assert not state.residual["0.weight"].any()


def in_a_round(rank: int, size: int) -> DebugState:
    model = model_of()
    session = attach(model, sgd(model), replace(Plan.parse("dense"), source="update:steps=4"))
    steps(session, model, rank, 2)
    seen = session.debug_state()
    session.close()
    return seen


def test_the_anchor_is_where_a_round_of_local_steps_began(rank_pool: RankPool) -> None:
    began = dict(model_of().named_parameters())
    for state in rank_pool.run_in_process_group(SIZE, in_a_round):
        assert list(state.anchor) == NAMES
        assert all(torch.equal(each, began[name]) for name, each in state.anchor.items())


def test_a_single_process_holds_nothing() -> None:
    model = model_of()
    session = Session(model, sgd(model), group=None, plan=dense_plan(), recorder=Recorder(None))
    assert session.debug_state() == DebugState()
    session.close()
