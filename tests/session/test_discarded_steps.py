"""A script throws a step away after ``backward()``: it trains what DDP trains, and nothing held back is lost."""

from __future__ import annotations

import itertools

import pytest
import torch
import trimtab
from kit.rank_pool import RankPool
from kit.training.held_back import residual_of
from kit.training.regression import loss_of, model_of
from kit.training.scripted_control import Script
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import DataLoader, TensorDataset
from trimtab.control.messages import AdoptPlan
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.plan.plan import Plan
from trimtab_api.errors import UserError

SIZE = 2
STEPS = 7


def train(rank: int, size: int, text: str | None, style: str) -> tuple[Tensor, int]:
    """What a loop trains that leaves every third step out, or passes back twice; with DDP where no plan is given."""
    model = model_of()
    trained = model[2:] if style == "head alone" else model  # whose zero_grad() leaves the gradients of the others
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.05, momentum=0.9)
    scaler = GradScaler("cpu", init_scale=2.0**8, enabled=style == "scaler")
    session = None if text is None else attach(model, optimizer, text, scale=LossScale(scaler))
    module: nn.Module = nn.parallel.DistributedDataParallel(model) if session is None else model
    for number in range(STEPS):
        optimizer.zero_grad(set_to_none=number % 2 == 0)
        if style == "adversarial":
            loss_of(module, number + 50, rank).backward()
            optimizer.zero_grad(set_to_none=number % 2 == 1)
        scaler.scale(loss_of(module, number, rank)).backward()
        if style != "adversarial" and number % 3 == 1:
            if style == "skip" and session is not None:
                session.skip()
            if style == "scaler":
                scaler.unscale_(optimizer)
                scaler.update()
            continue
        scaler.step(optimizer)
        scaler.update()
    steps = session.steps if session is not None else 0
    if session is not None:
        session.close()
    return weights_of(model), steps


@pytest.mark.pattern(
    "a step discarded after `backward()` (`zero_grad()`, `continue`)",
    works="works on all ranks at the same batch; under local steps on each alone",
)
@pytest.mark.pattern(
    "a step discarded by `scaler.update()` without `scaler.step(optimizer)`",
    works="works",
)
@pytest.mark.pattern(
    "a backward pass for the inputs alone (adversarial training)", works="works; or `session.skip()` after it"
)
@pytest.mark.parametrize("style", ["continue", "skip", "adversarial", "scaler", "head alone"])
def test_what_is_thrown_away_leaves_no_trace(rank_pool: RankPool, style: str) -> None:
    (ddp, _), *_ = rank_pool.run_in_process_group(SIZE, train, None, style)
    taken = STEPS if style == "adversarial" else 5
    for trained, steps in rank_pool.run_in_process_group(SIZE, train, "dense", style):
        assert torch.equal(trained, ddp)
        assert steps == taken
    (first, _), (second, _) = rank_pool.run_in_process_group(SIZE, train, "0.25/all-gather", style)
    assert torch.equal(first, second)


def residual_around(rank: int, size: int, scales: bool) -> tuple[Tensor, Tensor]:
    """What is held back before a step that is thrown away, and after it; by its GradScaler where that ``scales``."""
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler("cpu", init_scale=2.0**8, enabled=scales)
    session = attach(model, optimizer, "0.1/all-gather", scale=LossScale(scaler))
    for number in range(2):
        scaler.scale(loss_of(model, number, rank)).backward()
        session.step()
    before = residual_of(session)
    scaler.scale(loss_of(model, 2, rank)).backward()
    if scales:
        scaler.unscale_(optimizer)
        scaler.update()
    else:
        session.skip()
    after = residual_of(session)
    session.close()
    return before, after


@pytest.mark.parametrize("scales", [False, True])
def test_what_is_held_back_stays_as_it_was(rank_pool: RankPool, scales: bool) -> None:
    for before, after in rank_pool.run_in_process_group(SIZE, residual_around, scales):
        assert before.any()
        assert torch.equal(before, after)


def plans_around(rank: int, size: int) -> list[str]:
    """The collectives in force where rank 0 has another adopted, with a step that is then thrown away."""
    adopted = Plan.parse("0.1/all-gather").with_version(1)
    script = Script({1: AdoptPlan(adopted)}) if rank == 0 else None
    model = model_of()
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.1), "dense", control_client=script)
    names = []
    for number in range(4):
        loss_of(model, number, rank).backward()
        if number == 1:
            model.zero_grad()
        else:
            session.step()
        names.append(session.plan.collective)
    session.close()
    return names


def test_what_rank_0_says_in_a_step_thrown_away_is_followed_after_the_next(rank_pool: RankPool) -> None:
    for names in rank_pool.run_in_process_group(SIZE, plans_around):
        assert names == ["dense-ring", "dense-ring", "all-gather", "all-gather"]


def train_in_rounds(rank: int, size: int) -> tuple[Tensor, int]:
    """Rounds of local steps in which each rank leaves out batches of its own, the first and the last among them."""
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    session = attach(model, optimizer, "0.5/all-gather/source=update:steps=4")
    inputs = torch.randn(44, 4, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=2)
    for number, (x, y) in enumerate(session.batches(loader)):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        if number in ((0, 3, 10) if rank == 0 else (4, 7)):
            continue
        session.step()
    steps = session.steps
    session.close()
    return weights_of(model), steps


def test_rounds_end_together_although_ranks_leave_out_other_batches(rank_pool: RankPool) -> None:
    (first, steps), (second, others) = rank_pool.run_in_process_group(SIZE, train_in_rounds)
    assert torch.equal(first, second)
    assert steps == others == 11


def stepping_unseen(rank: int, size: int, text: str, how: str) -> str:
    """What a loop is told whose weights something else than the session's optimizer changes."""
    model = model_of()
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.1), text)
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        for number in itertools.count():
            assert number < 4, "several passes without a word"
            loss_of(model, number, rank).backward()
            if how == "new optimizer":
                other.step()
            elif how == "by way of data":
                for parameter in model.parameters():
                    parameter.data.add_(torch.ones(()), alpha=-0.1)
            model.zero_grad(set_to_none=how != "new optimizer")
    except UserError as error:
        return str(error)
    finally:
        session.close()


@pytest.mark.pattern(
    "a new optimizer during training, not attached",
    refused="`... call session.close() and attach again`",
)
@pytest.mark.parametrize("text", ["dense", "0.25/all-gather", "0.25/all-gather/source=update:steps=4"])
@pytest.mark.parametrize("how", ["new optimizer", "by way of data"])
def test_a_step_that_the_session_does_not_see_is_no_step_thrown_away(rank_pool: RankPool, text: str, how: str) -> None:
    for said in rank_pool.run_in_process_group(SIZE, stepping_unseen, text, how):
        assert "weights changed after backward()" in said
        assert "session.close() and attach again" in said


def test_one_process_throws_its_gradients_away() -> None:
    model = model_of()
    session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.05))
    loss_of(model, 0, 0).backward()
    session.skip()
    session.step()
    session.close()
    assert torch.equal(weights_of(model), weights_of(model_of()))
