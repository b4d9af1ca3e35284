"""A training step from the user's side: what the session promises of gradients, residuals, trials and commits."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kit.fusion_plans import cut_before
from kit.rank_pool import RankPool
from kit.training.held_back import residual_of
from kit.training.random_training import (
    STEPS,
    THREE_BUFFERS,
    assert_same,
    loader,
    make_session,
    network,
    state,
    train,
)
from kit.training.scripted_control import Script
from torch import nn
from trimtab.control.messages import AdoptPlan, TryPlans
from trimtab.engine.gradients.flat_buffers import LEND_FROM
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.plan.plan import FusionPlan, Plan, dense_plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.errors import UserError


def run_with_trials(
    rank: int, size: int, plan: Plan, trials: bool, kind: str
) -> tuple[dict[str, Any], list[float], int]:
    candidates = [
        Plan.parse("0.3/all-gather", THREE_BUFFERS),
        Plan.parse("dense", THREE_BUFFERS),
        Plan.parse("0.05/artopk-var-tree", FusionPlan((0, 84), "ahead")),
    ]
    message = TryPlans(tuple(candidates), 5)
    script = Script({3: message, 7: message} if trials else {}) if rank == 0 else None
    model = network()
    session, optimizer, scheduler = make_session(plan, model, kind, control_client=script)
    torch.manual_seed(rank)
    np.random.seed(rank)
    random.seed(rank)
    losses = train(session, model)
    count = len(script.reports) if script else 0
    result = state(session, model, optimizer, scheduler), losses, count
    session.close()
    return result


@pytest.mark.parametrize(
    ("plan", "optimizer"),
    [
        ("0.1/all-gather", "SGD"),
        ("0.1/artopk-star-ring", "SGD"),
        ("dense", "SGD"),
        ("0.1/all-gather", "AdamW"),
        ("dense", "AdamW with AMSGrad"),
    ],
)
def test_trials_leave_everything_as_it_was_bit_for_bit(plan: str, optimizer: str, rank_pool: RankPool) -> None:
    parsed = Plan.parse(plan, THREE_BUFFERS)
    without = rank_pool.run_in_process_group(3, run_with_trials, parsed, False, optimizer)
    with_trials = rank_pool.run_in_process_group(3, run_with_trials, parsed, True, optimizer)
    assert with_trials[0][2] == 2, "both trials ran"
    for (state_a, losses_a, _), (state_b, losses_b, _) in zip(without, with_trials, strict=True):
        assert losses_a == losses_b
        assert_same(state_a, state_b)


def run_ddp(rank: int, size: int, ours: bool) -> dict[str, torch.Tensor]:
    model = network()
    if ours:
        session, _, _ = make_session(Plan.parse("dense"), model)
        torch.manual_seed(rank)
        train(session, model)
        session.close()
        return dict(model.state_dict())
    wrapped = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    from trimtab.data.sharded_loader import ShardedLoader

    torch.manual_seed(rank)
    for taken, (x, y) in enumerate(ShardedLoader(loader(), rank, size, seed=0).epoch(0), 1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(wrapped(x), y).backward()
        optimizer.step()
        scheduler.step()
        if taken == STEPS:
            break
    return dict(model.state_dict())


def _seeded(rank: int, size: int, ours: bool) -> dict[str, torch.Tensor]:
    np.random.seed(rank)
    random.seed(rank)
    return run_ddp(rank, size, ours)


def test_ratio_one_is_distributed_data_parallel_bit_for_bit(rank_pool: RankPool) -> None:
    """Between two ranks a sum has one order, so the bits must agree."""
    ours = rank_pool.run_in_process_group(2, _seeded, True)
    theirs = rank_pool.run_in_process_group(2, _seeded, False)
    for a, b in zip(ours, theirs, strict=True):
        for name in a:
            assert torch.equal(a[name], b[name]), name


def accumulate_and_skip(rank: int, size: int, plan: Plan) -> dict[str, Any]:
    """Three ranks, one of which meets an infinity under a loss scale; then two backward passes in one step."""
    model = network()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    session, _optimizer, _scheduler = make_session(plan, model, scale=LossScale(scaler))
    x, y = torch.randn(8, 8), torch.randint(0, 4, (8,))

    def backward(factor: float = 1.0) -> None:
        scaler.scale(nn.functional.cross_entropy(model(x), y) * factor).backward()

    backward()
    session.step()
    before = {k: v.clone() for k, v in model.state_dict().items() if "running" not in k and "num_" not in k}
    residual = residual_of(session)
    backward(float("inf") if rank == 1 else 1.0)
    session.step()
    after = {k: v for k, v in model.state_dict().items() if k in before}
    skipped = all(torch.equal(before[k], after[k]) for k in before)
    kept = torch.equal(residual, residual_of(session))
    scale_after = scaler.get_scale()
    with session.no_sync():
        backward()
        optimizer_sees_own = model[0].weight.grad.clone()
    backward()
    session.step()
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    session.close()
    return {"skipped": skipped, "kept": kept, "scale": scale_after, "weights": weights, "own": optimizer_sees_own}


@pytest.mark.pattern("an infinity on one rank", works="the step is dropped on all")
@pytest.mark.parametrize("plan", ["0.1/all-gather", "0.2/artopk-var-ring", "dense-tree"])
def test_one_rank_s_infinity_drops_the_step_everywhere(plan: str, rank_pool: RankPool) -> None:
    results = rank_pool.run_in_process_group(3, accumulate_and_skip, Plan.parse(plan, THREE_BUFFERS))
    for result in results:
        assert result["skipped"], "weights moved"
        assert result["kept"], "residuals moved"
        assert result["scale"] == 512.0, "backed off on every rank, also where all was finite"
        assert torch.equal(result["weights"], results[0]["weights"]), "ranks stay alike"


def replan(rank: int, size: int, widths: tuple[int, ...]) -> dict[str, Any]:
    """Conservation across a re-plan: what is held back under one plan is not lost under the next."""
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for width in widths))
    num_elements = sum(width**2 for width in widths)
    plans = [
        Plan.parse("0.05/all-gather", cut_before(model, 0, 1, 2, selection="ahead")),
        Plan.parse("0.02/artopk-star-tree"),
        Plan.parse("0.2/artopk-star-ring", cut_before(model, 0, 2)),
        Plan.parse("dense", cut_before(model, 0, 1, 2)),
    ]
    messages = {2 * i: AdoptPlan(plan.with_version(i)) for i, plan in enumerate(plans) if i}
    script = Script(messages) if rank == 0 else None
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    session = Session(
        model, optimizer, group=Group.connect(), plan=plans[0], recorder=Recorder(None), control_client=script
    )
    start = torch.cat([p.detach().reshape(-1).clone() for p in reversed(list(model.parameters()))])
    generator = torch.Generator().manual_seed(rank)
    total = torch.zeros(num_elements)
    names, residual_seen = [], 0.0
    for _ in range(8):
        gradient = torch.randn(num_elements, generator=generator)
        total += gradient
        weights = torch.cat([p.reshape(-1) for p in reversed(list(model.parameters()))])
        (weights * gradient).sum().backward()
        names.append(session.plan.name)
        session.step()
        residual_seen = max(residual_seen, float(residual_of(session).norm()))
    moved = start - torch.cat([p.detach().reshape(-1) for p in reversed(list(model.parameters()))])
    result = {
        "total": total,
        "moved": moved,
        "residual": residual_of(session),
        "names": names,
        "residual_seen": residual_seen,
    }
    session.close()
    return result


@pytest.mark.parametrize("widths", [(16, 16, 16), (400, 16, 370)], ids=["copied", "read where autograd left them"])
def test_nothing_is_lost_when_the_plan_changes(widths: tuple[int, ...], rank_pool: RankPool) -> None:
    results = rank_pool.run_in_process_group(3, replan, widths)
    assert len(set(results[0]["names"])) == 4, results[0]["names"]
    assert results[0]["residual_seen"] > 1
    assert (widths[0] ** 2 >= LEND_FROM) == (widths[0] == 400)
    total = sum(r["total"] for r in results)
    held = sum(r["residual"] for r in results)
    torch.testing.assert_close(3 * results[0]["moved"] + held, total, rtol=0, atol=1e-3)
    for result in results[1:]:
        assert torch.equal(result["moved"], results[0]["moved"])
        assert result["names"] == results[0]["names"]


def unused(rank: int, size: int) -> tuple[float, float]:
    """A parameter that a step does not use still flushes its residual."""
    used, idle = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    model = nn.ModuleList([used, idle])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    session = Session(
        model,
        optimizer,
        group=Group.connect(),
        plan=Plan.parse("0.1/all-gather", FusionPlan((0, 16))),
        recorder=Recorder(None),
    )
    (used.weight.sum() + idle.weight.sum()).backward()
    session.step()
    held = float(residual_of(session)[:16].abs().sum())
    for _ in range(20):
        used.weight.sum().backward()
        session.step()
    flushed = float(residual_of(session)[:16].abs().sum())
    session.close()
    return held, flushed


def test_unused_parameters_flush_their_residual(rank_pool: RankPool) -> None:
    for held, flushed in rank_pool.run_in_process_group(2, unused):
        assert held > 0
        assert flushed == 0


def twice(rank: int, size: int) -> str:
    model = network()
    _session, _, _ = make_session(Plan.parse("dense"), model)
    x = torch.randn(8, 8)
    model(x).sum().backward()
    try:
        model(x).sum().backward()
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.pattern(
    "a second backward pass without `no_sync`",
    refused="`... wrap all but the last in session.no_sync(); ...`",
)
def test_a_second_backward_without_no_sync_is_refused(rank_pool: RankPool) -> None:
    for message in rank_pool.run_in_process_group(2, twice):
        assert "wrap all but the last in session.no_sync()" in message
        assert "clear the gradients or call session.skip()" in message


def mismatch(rank: int, size: int) -> str:
    model = network()
    plan = replace(Plan.parse("dense"), version=rank)
    try:
        session, _, _ = make_session(plan, model)
        model(torch.randn(8, 8)).sum().backward()
        session.step()
    except Exception as error:
        return str(error)
    return ""


def test_ranks_that_follow_different_plans_find_out_in_the_first_step(rank_pool: RankPool) -> None:
    for message in rank_pool.run_in_process_group(2, mismatch):
        assert "the ranks disagree" in message
        assert "step 0, plan version 1" in message


def test_an_evaluation_is_recorded_whatever_kind_of_number_it_is(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    session = Session(
        model,
        torch.optim.SGD(model.parameters()),
        group=None,
        plan=dense_plan(),
        recorder=Recorder(tmp_path),
    )
    session.report(accuracy=np.float32(0.5), loss=torch.tensor(0.25), perplexity=2)
    with pytest.raises(UserError, match=r"^accuracy: 'good': hand over one real number$"):
        session.report(accuracy="good")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"^accuracy: "):
        session.report(accuracy=torch.ones(2))
    for name in ("step", "time", "event"):  # by which the line could not be read
        with pytest.raises(UserError, match=f"^session.report: '{name}': every record has it by itself; leave it out$"):
            session.report(accuracy=0.5, **{name: 100})
    session.close()
    (line,) = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert {name: line[name] for name in ("accuracy", "loss", "perplexity")} == {
        "accuracy": 0.5,
        "loss": 0.25,
        "perplexity": 2.0,
    }
