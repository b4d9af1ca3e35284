"""Rounds of local steps in loops as scripts write them: left early, thrown away, frozen, evaluated in between."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.engines import engine_of
from kit.training.local_steps import plan_of
from kit.training.regression import backward, model_of
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from trimtab.engine.exchange.consensus import STEPS_BETWEEN_FINGERPRINTS
from trimtab.plan.plan import Plan
from trimtab.session.session import Session
from trimtab_api.errors import UserError


def attached(steps: int, *, lr: float = 0.05) -> tuple[nn.Sequential, torch.optim.Optimizer, Session]:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return model, optimizer, attach(model, optimizer, plan_of("dense", steps))


def grads_of(model: nn.Module) -> Tensor:
    return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])


def gradient_at(weights: Tensor, number: int, rank: int) -> Tensor:
    twin = model_of()
    nn.utils.vector_to_parameters(weights, twin.parameters())
    backward(twin, number, rank)
    return grads_of(twin)


def throws_away_the_last_of_a_round(rank: int, size: int, by: str) -> list[Tensor]:
    """The gradient of the step after it, and what it should be."""
    model, optimizer, session = attached(2)
    seen = []
    for number in session.batches(range(4), sharded=True):
        before = weights_of(model)
        backward(model, number, rank)
        if number == 2:
            seen = [grads_of(model).clone(), gradient_at(before, number, rank)]
        if number != 1:
            session.step()
        elif by == "skip":
            session.skip()
        else:
            optimizer.zero_grad()
    session.close()
    return seen


@pytest.mark.parametrize("by", ["skip", "zero_grad"])
def test_a_step_thrown_away_at_the_end_of_a_round_leaves_no_gradient(rank_pool: RankPool, by: str) -> None:
    for seen, expected in rank_pool.run_in_process_group(2, throws_away_the_last_of_a_round, by):
        assert torch.equal(seen, expected)


def accumulates_without_no_sync(rank: int, size: int, steps: int) -> str:
    model, _, session = attached(steps)

    def train() -> None:
        for number in session.batches(range(8), sharded=True):
            backward(model, number, rank)
            if number % 2:
                session.step()

    with contextlib.closing(session), pytest.raises(UserError) as refused:
        train()
    return str(refused.value)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_second_pass_of_a_step_without_no_sync_is_refused_as_under_gradients(rank_pool: RankPool, steps: int) -> None:
    for said in rank_pool.run_in_process_group(2, accumulates_without_no_sync, steps):
        assert "wrap all but the last in session.no_sync()" in said


def leaves_its_loop(rank: int, size: int, how: str) -> Tensor:
    model, _, session = attached(4)

    def train() -> None:
        for number in session.batches(range(10), sharded=True):
            backward(model, number, rank)
            session.step()
            if session.steps == 6:
                if how == "break":
                    break
                if how == "return":
                    return

    if how == "end_round":
        for number in range(6):
            backward(model, number, rank)
            session.step()
        session.end_round()
        session.end_round()  # of nothing
    else:
        train()
    weights = weights_of(model)
    session.close()
    session.end_round()
    return weights


@pytest.mark.parametrize("how", ["break", "return", "end_round"])
def test_ranks_are_alike_where_a_loop_is_left_in_mid_round(rank_pool: RankPool, how: str) -> None:
    first, second = rank_pool.run_in_process_group(2, leaves_its_loop, how)
    assert torch.equal(first, second)


class LoopError(Exception):
    """The script's own."""


def fails_in_its_loop(rank: int, size: int) -> str:
    model, _, session = attached(4)

    def train() -> None:
        for number in session.batches(range(10), sharded=True):
            backward(model, number, rank)
            session.step()
            if number == 5:
                raise LoopError("of the script")

    with contextlib.closing(session), pytest.raises(LoopError) as failed:
        train()
    return str(failed.value)


def test_an_error_in_mid_round_is_the_scripts_own(rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(2, fails_in_its_loop) == ["of the script"] * 2


def evaluates_in_mid_round(rank: int, size: int, everyone: bool) -> tuple[list[Tensor], Tensor]:
    """Weights before and after the loop over validation data, and in the end."""
    model, _, session = attached(4)
    seen = []
    for number in session.batches(range(8), sharded=True):
        backward(model, number, rank)
        session.step()
        if number == 5 and (everyone or rank == 0):
            seen.append(weights_of(model))
            for _ in session.batches(range(2), sharded=True):
                pass
            seen.append(weights_of(model))
    weights = weights_of(model)
    session.close()
    return seen, weights


@pytest.mark.parametrize("everyone", [True, False])
def test_a_loop_without_steps_ends_no_round(rank_pool: RankPool, everyone: bool) -> None:
    (seen, first), (_, second) = rank_pool.run_in_process_group(2, evaluates_in_mid_round, everyone)
    assert torch.equal(*seen)
    assert torch.equal(first, second)


def looks_at_the_anchor(rank: int, size: int, text: str) -> list[Tensor]:
    model = model_of()
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.05), Plan.parse(text))
    began, own, anchors = weights_of(model), [], []
    for number in range(6):
        backward(model, number, rank)
        with pytest.raises(UserError, match=r"session\.anchor: comes between two steps"), session.anchor():
            pass
        session.step()
        before = weights_of(model)
        with session.anchor():
            anchors.append(weights_of(model))
        own.append(torch.equal(weights_of(model), before))
    session.close()
    assert all(own), "each rank has its own weights again"
    return [began, *anchors, weights_of(model)]


def test_the_anchor_is_where_the_round_began_on_every_rank(rank_pool: RankPool) -> None:
    ranks = rank_pool.run_in_process_group(2, looks_at_the_anchor, "0.3/all-gather/source=update:steps=4")
    for first, second in zip(*(each[:-1] for each in ranks), strict=True):
        assert torch.equal(first, second)
    began, *anchors = ranks[0][:-1]
    assert [torch.equal(each, began) for each in anchors] == [True] * 3 + [False] * 3
    assert torch.equal(anchors[3], anchors[5])
    assert not torch.equal(ranks[0][-1], ranks[1][-1])


def test_under_gradients_the_anchor_is_the_weights(rank_pool: RankPool) -> None:
    for _, *anchors, last in rank_pool.run_in_process_group(2, looks_at_the_anchor, "0.3/all-gather"):
        assert torch.equal(anchors[-1], last)


def frozen_in_mid_round(rank: int, size: int, text: str) -> list[Any]:
    """Weights and residual of what is frozen after two steps of the first round of four, as rounds go on."""
    model = nn.ModuleList([nn.Linear(4, 3, bias=False), nn.Linear(4, 3, bias=False)])
    for each in model.parameters():
        nn.init.zeros_(each)
    session = attach(model, torch.optim.SGD(model.parameters(), lr=1.0), Plan.parse(text))
    seen = []
    for number in range(12):
        model[0].weight.requires_grad_(number not in range(2, 10))
        sum((each * (rank + 1)).sum() for each in model.parameters() if each.requires_grad).backward()
        session.step()
        held = session.debug_state()
        held_back = sum(float(each["0.weight"].sum()) for each in (held.residual, held.set_aside) if "0.weight" in each)
        seen.append((float(model[0].weight.sum()), held_back))
    session.close()
    return seen


@pytest.mark.parametrize("text", ["dense/source=update:steps=4", "0.1/all-gather/source=update:steps=4"])
def test_what_is_frozen_in_mid_round_keeps_what_it_had_learned(rank_pool: RankPool, text: str) -> None:
    ranks = rank_pool.run_in_process_group(2, frozen_in_mid_round, text)
    applied = {each[3][0] for each in ranks}
    assert len(applied) == 1, "alike on all ranks"
    made, held_back = -12 * 2 * 1.5, sum(each[3][1] for each in ranks) / 2
    assert applied.pop() - held_back == pytest.approx(made), "what was learned is applied or held back"
    for seen in ranks:
        assert {each[0] for each in seen[3:10]} == {seen[3][0]}, "it stands still"
    made += -12 * 2 * 1.5
    assert ranks[0][11][0] - sum(each[11][1] for each in ranks) / 2 == pytest.approx(made)


def parts_from_the_others(rank: int, size: int, steps: int) -> int:
    """Steps until it is found that rank 1's anchor is another."""
    model, _, session = attached(steps, lr=1e-6)
    for number in range(2 * STEPS_BETWEEN_FINGERPRINTS + steps):
        backward(model, 0, rank)
        session.step()
        if number == steps - 1 and rank == 1:
            local = engine_of(session).local
            assert local is not None
            with torch.no_grad():
                local.anchor.add_(0.1)
                for each in model.parameters():
                    each.add_(0.1)
    return session.steps


@pytest.mark.parametrize("steps", [3, 16])
def test_weights_are_compared_every_hundred_steps_whatever_the_rounds(rank_pool: RankPool, steps: int) -> None:
    found = -(-(STEPS_BETWEEN_FINGERPRINTS + 1) // steps) * steps - 1  # the last step of the round with the hundredth
    with pytest.raises(Exception, match=f"rank 1 holds other weights than rank 0 at step {found}: "):
        rank_pool.run_in_process_group(2, parts_from_the_others, steps)


def ends_a_round_alone(rank: int, size: int) -> None:
    model, _, session = attached(4)
    for number in range(6):
        backward(model, number, rank)
        session.step()
        if number == 1 and rank == 0:
            session.end_round()


def test_a_rank_that_ends_a_round_alone_is_told_so(rank_pool: RankPool) -> None:
    with pytest.raises(Exception, match=r"ranks are not at the same step of a round: here it has [24] local steps"):
        rank_pool.run_in_process_group(2, ends_a_round_alone)
