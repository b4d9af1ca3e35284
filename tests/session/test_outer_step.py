"""The outer optimizer: what torch's SGD with Nesterov's momentum would make of each round's mean update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.engines import engine_of
from kit.training.local_steps import plan_of, step_by_hand, with_trials
from kit.training.regression import SIZE, backward, model_of, optimizer_of
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from trimtab.control.settings import sources_of
from trimtab.plan.plan import Plan
from trimtab_api.trainingjob.communication import LocalSteps

DILOCO = ":outerRate=0.7:outerMomentum=0.9"


def outer(text: str, steps: int, options: str = DILOCO) -> Plan:
    plan = plan_of(text, steps)
    return replace(plan, source=f"{plan.source}{options}")


def train(rank: int, size: int, plan: Plan, num_steps: int) -> Tensor:
    """The weights once all is brought in."""
    model = model_of()
    session = attach(model, optimizer_of(model, "AdamW"), plan)
    for number in range(num_steps):
        backward(model, number, rank)
        session.step()
    session.end_round()
    answer = weights_of(model)
    session.close()
    return answer


def by_hand(steps: int, num_steps: int, rate: float, momentum: float, *, is_deferred: bool = False) -> Tensor:
    """All ranks in one process; torch's own SGD steps the anchor. ``is_deferred``: by the mean of the round before."""
    models = [model_of() for _ in range(SIZE)]
    optimizers = [optimizer_of(model, "AdamW") for model in models]
    anchor = nn.Parameter(weights_of(models[0]))
    stepping = torch.optim.SGD([anchor], lr=rate, momentum=momentum, nesterov=momentum > 0)
    starts, under_way = [weights_of(model) for model in models], None

    def step(update: Tensor) -> None:
        anchor.grad = update
        stepping.step()

    for number in range(num_steps):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            step_by_hand(model, optimizer, number, rank)
        if number % steps != steps - 1:
            continue
        made = [start - weights_of(model) for start, model in zip(starts, models, strict=True)]
        mean = torch.stack(made).mean(0)
        if not is_deferred:
            step(mean)
        elif under_way is not None:
            step(under_way)
        under_way = mean
        starts = [anchor.detach() - (own if is_deferred else 0) for own in made]
        for model, start in zip(models, starts, strict=True):
            nn.utils.vector_to_parameters(start.clone(), model.parameters())
    if is_deferred:
        assert under_way is not None
        step(under_way)
    return anchor.detach()


@pytest.mark.parametrize(("rate", "momentum"), [(0.7, 0.9), (1.5, 0.0), (1.0, 0.5)])
def test_the_anchor_takes_the_step_of_torchs_sgd(rank_pool: RankPool, rate: float, momentum: float) -> None:
    plan = outer("dense", 3, f":outerRate={rate}:outerMomentum={momentum}")
    first, *others = rank_pool.run_in_process_group(SIZE, train, plan, 12)
    torch.testing.assert_close(first, by_hand(3, 12, rate, momentum), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(first, other) for other in others)


def test_so_it_does_one_round_late_under_overlap(rank_pool: RankPool) -> None:
    plan = replace(outer("dense", 3), schedule="overlap")
    first, *others = rank_pool.run_in_process_group(SIZE, train, plan, 12)
    torch.testing.assert_close(first, by_hand(3, 12, 0.7, 0.9, is_deferred=True), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(first, other) for other in others)


def after_changes(rank: int, size: int) -> dict[str, Any]:
    """Whether the velocity is still there after plans that keep the outer optimizer, and that do not."""
    model = model_of()
    session = attach(model, optimizer_of(model, "AdamW"), outer("dense", 2))
    engine = engine_of(session)
    seen: dict[str, Any] = {}

    def norm_under(plan: Plan) -> float:
        engine.plans.adopt(plan, engine.step_tag.step)
        kept = engine.exchanger.schemes.outer
        return 0.0 if kept is None else float(kept.state().norm())

    for number in range(4):
        backward(model, number, rank)
        session.step()
    before = norm_under(engine.plan)
    seen["other ratio and H"] = norm_under(outer("0.1/all-gather", 4)) == before > 0
    seen["other momentum"] = norm_under(outer("dense", 2, ":outerMomentum=0.5"))
    seen["gradients"] = norm_under(Plan.parse("dense"))
    seen["again"] = norm_under(outer("dense", 2))
    session.close()
    return seen


def test_its_velocity_lasts_as_long_as_plans_name_the_same(rank_pool: RankPool) -> None:
    for seen in rank_pool.run_in_process_group(SIZE, after_changes):
        assert seen == {"other ratio and H": True, "other momentum": 0.0, "gradients": 0.0, "again": 0.0}


def test_a_trial_leaves_it_as_it_was(rank_pool: RankPool) -> None:
    candidates = [Plan.parse("0.2/all-gather"), outer("dense", 2), outer("0.2/all-gather", 4, ":outerMomentum=0.5")]
    without, tried = (
        rank_pool.run_in_process_group(SIZE, with_trials, outer("0.1/all-gather", 2), candidates, runs)
        for runs in (False, True)
    )
    assert tried[0][2] == 1
    for a, b in zip(without, tried, strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])


def test_a_jobs_local_steps_are_followed_by_the_outer_step_that_it_names() -> None:
    wanted = LocalSteps.model_validate({"max": 4, "outerRate": 0.7, "outerMomentum": 0.9})
    plans = [Plan(0.1, "all-gather", source=source) for source in sources_of(wanted)]
    assert [plan.local_steps for plan in plans] == [0, 1, 4]
    assert [plan.outer_step for plan in plans] == [None, (0.7, 0.9), (0.7, 0.9)]
    exact = LocalSteps.model_validate({"min": 1, "max": 1, "outerRate": 0.123456789})
    assert Plan(0.1, "all-gather", source=sources_of(exact)[0]).outer_step == (0.123456789, 0.0)
    assert sources_of(LocalSteps(max=1)) == ("gradient", "update"), "as a plan has it that names none"
