"""Schedule overlap: the updates of a round of local steps cross while the next round computes, one round late."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.engines import engine_of
from kit.training.held_back import anchor_of, residual_of
from kit.training.local_steps import step_by_hand, with_trials
from kit.training.regression import backward, model_of, optimizer_of
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from trimtab.control.types import ControllerSettings
from trimtab.plan.plan import FusionPlan, Plan
from trimtab_api.errors import UserError

SIZE = 3
CUTS = FusionPlan((0, 20))


def overlapped(text: str, steps: int) -> Plan:
    return replace(Plan.parse(text, CUTS), schedule="overlap", source=f"update:steps={steps}")


def in_order(model: nn.Module) -> Tensor:
    """The weights as the flat buffers have them: the last parameter first."""
    return torch.cat([p.detach().reshape(-1) for p in reversed(list(model.parameters()))])


def train(rank: int, size: int, text: str, steps: int, num_steps: int) -> dict[str, Any]:
    """Anchors after each step, and the weights when all is brought in."""
    model = model_of()
    session = attach(model, optimizer_of(model, "AdamW"), overlapped(text, steps))
    anchors, are_under_way = [], []
    for number in range(num_steps):
        backward(model, number, rank)
        session.step()
        anchors.append(anchor_of(session))
        are_under_way.append(bool(session.debug_state().num_sent))
    before = weights_of(model)
    session.end_round()
    brought_in = weights_of(model)
    session.close()
    return {"anchors": anchors, "are under way": are_under_way, "before": before, "brought in": brought_in}


def by_hand(steps: int, num_steps: int) -> Tensor:
    """All ranks in one process: each goes on from its own weights; the mean of its round comes a round later."""
    models = [model_of() for _ in range(SIZE)]
    optimizers = [optimizer_of(model, "AdamW") for model in models]
    anchor, starts, under_way = weights_of(models[0]), [weights_of(model) for model in models], None
    for number in range(num_steps):
        for rank, (model, stepping) in enumerate(zip(models, optimizers, strict=True)):
            step_by_hand(model, stepping, number, rank)
        if number % steps == steps - 1:
            made = [start - weights_of(model) for start, model in zip(starts, models, strict=True)]
            if under_way is not None:
                anchor = anchor - under_way
            under_way = torch.stack(made).mean(0)
            starts = [anchor - own for own in made]
            for model, start in zip(models, starts, strict=True):
                nn.utils.vector_to_parameters(start.clone(), model.parameters())
    assert under_way is not None
    return anchor - under_way


@pytest.mark.parametrize("steps", [1, 3])
def test_sending_everything_applies_each_rounds_mean_one_round_late(rank_pool: RankPool, steps: int) -> None:
    for seen in rank_pool.run_in_process_group(SIZE, train, "dense", steps, 9):
        torch.testing.assert_close(seen["brought in"], by_hand(steps, 9), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", ["dense", "0.1/all-gather", "0.1/artopk-star-ring"])
def test_anchors_are_alike_after_every_step_and_the_weights_once_all_is_brought_in(
    rank_pool: RankPool, text: str
) -> None:
    ranks = rank_pool.run_in_process_group(SIZE, train, text, 2, 9)  # which ends within a round
    for other in ranks[1:]:
        for mine, theirs in zip(ranks[0]["anchors"], other["anchors"], strict=True):
            assert torch.equal(mine, theirs)
        assert not torch.equal(ranks[0]["before"], other["before"])
        assert torch.equal(ranks[0]["brought in"], other["brought in"])
    assert ranks[0]["are under way"] == [False, *8 * [True]], "sent as the round ends, under the steps of the next"
    first, second, fourth = (ranks[0]["anchors"][step] for step in (0, 1, 3))
    assert torch.equal(first, second), "the first round's update is still under way"
    assert not torch.equal(second, fourth)


def any_course(rank: int, size: int, seed: int) -> dict[str, Tensor]:
    """Rounds under plans drawn at random, brought in or dropped here and there: what was made, and what came of it."""
    draw = random.Random(seed)
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    session = attach(model, optimizer, overlapped("0.1/all-gather", 2))
    engine = engine_of(session)
    began, made = in_order(model).double(), torch.zeros(in_order(model).numel(), dtype=torch.float64)
    for number in range(24):
        backward(model, number, rank)
        gradient = torch.cat([p.grad.reshape(-1) for p in reversed(list(model.parameters())) if p.grad is not None])
        session.step()
        made += 0.05 * gradient.double()
        what = draw.random()
        if what < 0.15:
            session.end_round()
        elif what < 0.3:
            text = draw.choice(("dense", "0.1/all-gather", "0.3/artopk-star-ring"))
            plan = overlapped(text, draw.choice((1, 2, 3)))
            engine.plans.adopt(
                replace(plan, fusion=FusionPlan((0, draw.randrange(1, 60)))).with_version(number), number + 1
            )
    session.end_round()
    anchor = anchor_of(session).double()
    residual = residual_of(session).double()
    session.close()
    return {"moved": began - anchor, "made": made, "residual": residual}


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_whatever_plans_follow_each_other_within_rounds_or_between(
    rank_pool: RankPool, seed: int
) -> None:
    ranks = rank_pool.run_in_process_group(SIZE, any_course, seed)
    total = {name: torch.stack([each[name] for each in ranks]).sum(0) for name in ranks[0]}
    torch.testing.assert_close(total["made"], total["moved"] + total["residual"], rtol=0, atol=2e-5)


def dropped(rank: int, size: int) -> dict[str, Any]:
    model = model_of()
    session = attach(model, optimizer_of(model, "SGD"), overlapped("0.1/all-gather", 2))
    seen: dict[str, Any] = {}
    for number in range(12):
        backward(model, number, rank)
        if number == 5:
            seen["anchor"] = anchor_of(session)
            if rank == 1:
                with torch.no_grad():
                    next(model.parameters()).view(-1)[0] = float("nan")  # of its own weights alone
        session.step()
        if number == 7:
            seen["dropped"], seen["weights"] = anchor_of(session), in_order(model)
            seen["nothing waits"] = not session.debug_state().waiting
    seen["after"] = anchor_of(session)
    session.close()
    return seen


def test_an_update_that_is_not_finite_takes_every_rank_back_to_the_anchor_and_training_goes_on(
    rank_pool: RankPool,
) -> None:
    for seen in rank_pool.run_in_process_group(SIZE, dropped):
        assert torch.isfinite(seen["dropped"]).all()
        assert seen["nothing waits"], "the update that was made on top of it goes with it"
        assert torch.equal(seen["weights"], seen["dropped"][: len(seen["weights"])])
        assert torch.isfinite(seen["after"]).all()
        assert not torch.equal(seen["after"], seen["dropped"])


def tried_out(rank: int, size: int) -> tuple[Tensor, bool]:
    model = model_of()
    session = attach(model, optimizer_of(model, "SGD"), overlapped("0.1/all-gather", 2))
    for number in range(4):
        backward(model, number, rank)
        session.step()
    engine = engine_of(session)
    engine.plans.try_out(Plan.parse("0.2/all-gather"), 4, 1)
    seen = weights_of(model), not session.debug_state().waiting
    session.close()
    return seen


def test_a_trial_begins_at_the_anchor_with_nothing_under_way(rank_pool: RankPool) -> None:
    ranks = rank_pool.run_in_process_group(SIZE, tried_out)
    assert all(torch.equal(weights, ranks[0][0]) and nothing_waits for weights, nothing_waits in ranks)


@pytest.mark.parametrize(
    ("in_force", "candidates"),
    [
        (overlapped("0.1/all-gather", 2), [overlapped("0.2/artopk-star-ring", 1), Plan.parse("0.2/all-gather")]),
        (Plan.parse("0.1/all-gather"), [overlapped("0.1/all-gather", 2), overlapped("dense", 1)]),
    ],
    ids=["from overlapped rounds", "from gradients"],
)
def test_trials_leave_no_trace(rank_pool: RankPool, in_force: Plan, candidates: list[Plan]) -> None:
    without, tried = (
        rank_pool.run_in_process_group(SIZE, with_trials, in_force, candidates, runs) for runs in (False, True)
    )
    assert tried[0][2] == 1
    for a, b in zip(without, tried, strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])


def test_what_it_cannot_be_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="schedule: 'overlap': sends the updates of one round"):
        Plan.parse("0.1/all-gather/schedule=overlap")
    with pytest.raises(UserError, match="schedules: 'overlap': is not chosen by an Adaptive policy"):
        ControllerSettings(schedules=("wait-free", "overlap"))


def kept(rank: int, size: int, folder: Path) -> tuple[Tensor, Tensor]:
    """Weights of a run, and of one that was resumed in the middle."""

    def run(model: nn.Module, numbers: range, *, loads: bool = False, saves: int | None = None) -> Tensor:
        optimizer = optimizer_of(model, "SGD")
        session = attach(model, optimizer, overlapped("0.1/all-gather", 2))
        if loads:
            optimizer.load_state_dict(torch.load(folder / f"optimizer-{rank}"))
            session.load_exchange(folder / "exchange")
        for number in numbers:
            backward(model, number, rank)
            session.step()
            if number == saves:
                session.save_exchange(folder / "exchange")
                torch.save(model.state_dict(), folder / f"model-{rank}")
                torch.save(optimizer.state_dict(), folder / f"optimizer-{rank}")
        session.end_round()
        weights = weights_of(model)
        session.close()
        return weights

    whole = run(model_of(), range(12), saves=6)
    resumed = model_of()
    resumed.load_state_dict(torch.load(folder / f"model-{rank}"))
    return whole, run(resumed, range(7, 12), loads=True)


def test_a_run_that_is_resumed_is_the_run_that_was_not_interrupted(rank_pool: RankPool, tmp_path: Path) -> None:
    for whole, again in rank_pool.run_in_process_group(SIZE, kept, tmp_path):
        assert torch.equal(whole, again)
