"""Optimizers that take turns, and scripts that take their steps by hand: what they train is what DDP trains."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch
import trimtab
from kit.rank_pool import RankPool
from kit.training.job_file import job_file
from kit.training.regression import model_of
from kit.training.scripted_control import Script
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from trimtab.control.messages import TryPlans
from trimtab.engine.optimizer.modes import ManualOptimizer
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.session.checks import check_turns
from trimtab_api.errors import UserError

SIZE = 2
STEPS = 6


def batch(number: int, rank: int) -> Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(100 * number + rank))


def taking_turns(rank: int, size: int, plan: str | None) -> tuple[Tensor, int]:
    """The weights of two models, the second of which leaves gradients in the first, after turns of both."""
    first, second = model_of(), nn.Linear(4, 4)
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.02, weight_decay=0.1) for each in (first, second)]
    both = nn.ModuleList([first, second])
    session, wrapped = None, [first, second]
    if plan is None:
        wrapped = [DistributedDataParallel(each) for each in (first, second)]
    else:
        session = attach(both, optimizers, plan, alternating_optimizers=True)
    one, other = wrapped
    for number in range(STEPS):
        optimizers[0].zero_grad(set_to_none=number % 2 == 0)
        nn.functional.mse_loss(one(batch(number, rank)), torch.ones(4, 1)).backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        one(other(batch(number + 50, rank))).mean().backward()
        mine = [parameter.grad.clone() for parameter in first.parameters()]
        optimizers[1].step()
        if session is not None:
            left = [parameter.grad for parameter in first.parameters()]
            assert all(torch.equal(a, b) for a, b in zip(left, mine, strict=True)), (plan, number)
            assert session.steps == 2 * (number + 1)
    result = weights_of(both), 0 if session is None else session.steps
    if session is not None:
        session.close()
    return result


@pytest.mark.pattern(
    "two models with alternating optimizers (GAN)",
    works="`attach(nn.ModuleList([d, g]), [opt_d, opt_g], alternating_optimizers=True)`",
)
def test_turns_train_as_under_ddp_and_compressed_ranks_stay_equal(rank_pool: RankPool) -> None:
    ours = rank_pool.run_in_process_group(SIZE, taking_turns, "dense")
    theirs = rank_pool.run_in_process_group(SIZE, taking_turns, None)
    assert torch.equal(ours[0][0], theirs[0][0])
    for plan in ("0.2/all-gather", "0.2/artopk-star-ring"):
        compressed = rank_pool.run_in_process_group(SIZE, taking_turns, plan)
        assert torch.equal(compressed[0][0], compressed[1][0])
        assert not torch.equal(compressed[0][0], ours[0][0])


def asked_for_trials(rank: int, size: int, asks: bool) -> tuple[Tensor, list[Any], list[str]]:
    """What turns in a loop over batches train, where the controller asks for trials; and what it is answered."""
    first, second = model_of(), nn.Linear(4, 4)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (first, second)]
    both = nn.ModuleList([first, second])
    message = TryPlans((Plan.parse("0.3/all-gather", FusionPlan((0, 20))),), 2)
    controller = Script({2: message} if asks else {}) if rank == 0 else None
    session = attach(both, optimizers, "0.2/all-gather", alternating_optimizers=True, control_client=controller)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        for inputs in session.batches([batch(number, 0) for number in range(2 * STEPS)]):
            first.zero_grad()
            first(inputs).mean().backward()
            optimizers[0].step()
            second.zero_grad()
            first(second(inputs)).mean().backward()
            optimizers[1].step()
        session.close()
    answers = [] if controller is None else controller.reports
    return weights_of(both), answers, said.getvalue().splitlines()


def test_turns_have_no_trials_and_it_is_said(rank_pool: RankPool) -> None:
    asked, other = rank_pool.run_in_process_group(SIZE, asked_for_trials, True)
    unasked, _ = rank_pool.run_in_process_group(SIZE, asked_for_trials, False)
    assert torch.equal(asked[0], other[0])
    assert torch.equal(asked[0], unasked[0])
    assert asked[1] == [[]]
    assert any(each.startswith("trimtab: trials are disabled: optimizers alternate") for each in asked[2])


def an_infinity_in_a_turn(rank: int, size: int) -> bool:
    first, second = model_of(), nn.Linear(4, 4)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (first, second)]
    both = nn.ModuleList([first, second])
    session = attach(both, optimizers, "0.2/all-gather", alternating_optimizers=True)
    before = weights_of(both)
    (first(batch(0, rank)).mean() * (float("inf") if rank == 1 else 1.0)).backward()
    optimizers[0].step()
    is_as_before = torch.equal(weights_of(both), before)
    second(batch(1, rank)).mean().backward()
    optimizers[1].step()
    session.close()
    return is_as_before and not torch.equal(weights_of(second), before[-72:])


def test_an_infinity_drops_a_turn_everywhere_and_the_next_is_taken(rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(SIZE, an_infinity_in_a_turn) == [True] * SIZE


def under_local_steps(rank: int, size: int) -> str:
    model = model_of()
    try:
        attach(
            model,
            [torch.optim.SGD(model.parameters(), lr=0.1)],
            "dense/source=update:steps=3",
            alternating_optimizers=True,
        )
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.pattern(
    "`alternating_optimizers=True` and local steps, a GradScaler, or `session.step()`",
    refused="names the argument",
)
def test_local_steps_have_no_turns(rank_pool: RankPool) -> None:
    for said in rank_pool.run_in_process_group(SIZE, under_local_steps):
        assert said.startswith("plan.source: 'update:steps=3': makes rounds of several steps")


def by_session_step(rank: int, size: int) -> str:
    model = model_of()
    session = attach(model, [torch.optim.SGD(model.parameters(), lr=0.1)], "dense", alternating_optimizers=True)
    model(batch(0, rank)).mean().backward()
    try:
        session.step()
    except UserError as error:
        return str(error)
    finally:
        session.close()
    return ""


def test_a_session_step_does_not_say_whose_turn_it_is(rank_pool: RankPool) -> None:
    for said in rank_pool.run_in_process_group(SIZE, by_session_step):
        assert said == "session.step: is not used with alternating optimizers; call the step() of the optimizer"


def test_optimizers_of_the_same_parameters_and_scalers_take_no_turns() -> None:
    model = model_of()
    twice = [torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2)]
    with pytest.raises(UserError, match="alternating optimizers must not share parameters"):
        check_turns(twice, None)
    with pytest.raises(UserError, match="does not support alternating optimizers"):
        check_turns(twice[:1], GradScaler("cpu"))


def stepping_by_hand(rank: int, size: int, plan: str | None) -> tuple[Tensor, list[bool]]:
    """The weights after steps that the script takes by itself, one of which has an infinity on one rank."""
    model = model_of()
    module: Any = DistributedDataParallel(model) if plan is None else model
    session = None if plan is None else attach(model, [ManualOptimizer(model.parameters())], plan)
    moved = []
    for number in range(STEPS):
        module.zero_grad()
        loss = nn.functional.mse_loss(module(batch(number, rank)), torch.ones(4, 1))
        if number == 3 and session is not None:
            (loss * (float("inf") if rank == 1 else 1.0)).backward()
            before = weights_of(model)
        elif number != 3:
            loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if number != 3 or session is not None:
                    parameter.add_(parameter.grad, alpha=-0.1)
        if session is not None:
            session.step(loss)
            moved += [not torch.equal(weights_of(model), before)] if number == 3 else []
    if session is not None:
        session.close()
    return weights_of(model), moved


@pytest.mark.pattern(
    "manual updates (`p.data.add_(p.grad, ...)`)", works="`attach(model)`, and `session.step(loss)` after them"
)
def test_steps_by_hand_are_ddp_s_and_an_infinity_moves_nothing(rank_pool: RankPool) -> None:
    dense = rank_pool.run_in_process_group(SIZE, stepping_by_hand, "dense")
    theirs = rank_pool.run_in_process_group(SIZE, stepping_by_hand, None)
    assert torch.equal(dense[0][0], theirs[0][0])
    sparse = rank_pool.run_in_process_group(SIZE, stepping_by_hand, "0.2/all-gather")
    assert torch.equal(sparse[0][0], sparse[1][0])
    assert dense[0][1] == sparse[0][1] == [False]


def joins(rank: int, size: int, folder: Path, optimizers: str, job: Path | None) -> tuple[str, tuple[str, ...]]:
    """What attach says of a plan that delays updates, or the schedules that an Adaptive policy chooses from."""
    model = nn.Linear(4, 2)
    makes = {"alternating_optimizers": [torch.optim.SGD(model.parameters(), lr=0.1)], "by hand": None}[optimizers]
    plan = None if job else "dense/schedule=deft"
    options: dict[str, Any] = {
        "alternating_optimizers": makes is not None,
        "job": job,
        "plan": plan,
        "run_directory": folder / "run",
    }
    try:
        session = trimtab.attach(model, makes, **options)
    except UserError as error:
        return str(error), ()
    client = session._training._control._client
    chosen_from = () if client is None else client._controller._settings.schedules
    session.close()
    return "", chosen_from


@pytest.mark.pattern(
    "a plan of `deft` for manual updates or alternating optimizers",
    refused="`delays gradients, which is not supported ...`",
)
@pytest.mark.parametrize("optimizers", ["alternating_optimizers", "by hand"])
def test_schedules_that_delay_are_refused_at_attach_and_never_chosen(
    rank_pool: RankPool, tmp_path: Path, optimizers: str
) -> None:
    for said, _ in rank_pool.run_in_process_group(SIZE, joins, tmp_path, optimizers, None):
        assert said.startswith("plan.schedule: 'deft': delays gradients, which is not supported")
    for names, expected in ((["deft", "priority"], ("priority",)), (["deft"], ("wait-free",))):
        job = job_file(tmp_path, policy="Adaptive", schedules=names)
        answers = rank_pool.run_in_process_group(SIZE, joins, tmp_path / names[-1], optimizers, job)
        assert [said for said, _ in answers] == [""] * SIZE
        assert answers[0][1] == expected
