"""A model that stays wrapped in DistributedDataParallel, and steps that evaluate a closure, as frameworks have them."""

from __future__ import annotations

import copy
import io
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import trimtab
from kit.rank_pool import RankPool
from kit.training.regression import loss_of, model_of
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from trimtab.engine.gradients.uncompiled_hook import ModuleHook
from trimtab_api.errors import UserError

SIZE = 2
STEPS = 5


def train_wrapped(rank: int, size: int, folder: Path, plan: str | None, style: str) -> tuple[Tensor, bool, list[str]]:
    """The weights after a DDP script, with one line more where there is a plan; whether DDP exchanges afterwards."""
    os.chdir(folder)
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=style == "views")
    session = None if plan is None else trimtab.attach(ddp, optimizer, plan=plan)
    for number in range(STEPS):
        if style == "set":
            ddp.require_backward_grad_sync = False
            loss_of(ddp, number + 50, rank).backward()
            ddp.require_backward_grad_sync = True
        if style == "closure":

            def closure(number: int = number) -> Tensor:
                optimizer.zero_grad()
                loss = loss_of(ddp, number, rank)
                loss.backward()
                return loss

            assert optimizer.step(closure).item() > 0
            continue
        loss_of(ddp, number, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
    trained = weights_of(model)
    names = list(ddp.state_dict())
    if session is not None:
        assert session.steps == STEPS
        session.close()
    loss_of(ddp, rank, rank).backward()  # by DDP itself: the mean of unlike gradients
    alike = [torch.empty(17) for _ in range(size)]
    torch.distributed.all_gather(alike, torch.cat([p.grad.flatten() for p in model[2].parameters()]))
    return trained, torch.equal(alike[0], alike[1]), names


@pytest.mark.pattern("`ddp.require_backward_grad_sync = ...` (nanoGPT)", works="the session's `no_sync`")
@pytest.mark.pattern("steps that evaluate a closure (torch's optimizers but LBFGS)", works="works")
@pytest.mark.parametrize("style", ["views", "set", "closure"])
def test_a_wrapped_model_trains_as_under_ddp_and_ddp_is_itself_again_afterwards(
    rank_pool: RankPool, style: str, tmp_path: Path
) -> None:
    ours = rank_pool.run_in_process_group(SIZE, train_wrapped, tmp_path, "dense", style)
    theirs = rank_pool.run_in_process_group(SIZE, train_wrapped, tmp_path, None, style)
    for (mine, is_ddp, names), (other, _, _) in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)
        assert is_ddp
        assert names[0] == "module.0.weight"
    compressed = rank_pool.run_in_process_group(SIZE, train_wrapped, tmp_path, "0.2/all-gather", style)
    assert torch.equal(compressed[0][0], compressed[1][0])
    assert not torch.equal(compressed[0][0], ours[0][0])


class SharpnessAware(torch.optim.SGD):
    """Evaluates its closure in the midst of the step."""

    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            closure()
        return super().step()


def stepping_in_the_midst(rank: int, size: int) -> str:
    model = model_of()
    optimizer = SharpnessAware(model.parameters(), lr=0.05)
    session = attach(model, optimizer, "dense")
    try:
        optimizer.step(lambda: loss_of(model, 0, rank).backward())
    except UserError as error:
        return str(error)
    finally:
        session.close()
    return ""


@pytest.mark.pattern(
    "closures of optimizers that may evaluate them during a step (SAM)",
    refused="`may evaluate its closure in the midst of the step`",
)
def test_a_closure_that_may_be_evaluated_in_the_midst_of_a_step_is_refused(rank_pool: RankPool) -> None:
    for said in rank_pool.run_in_process_group(SIZE, stepping_in_the_midst):
        assert said.startswith("optimizer.step: 'SharpnessAware': may evaluate its closure in the midst of the step")


def inside_another(rank: int, size: int) -> str:
    model = nn.Sequential(DistributedDataParallel(nn.Linear(2, 1)))
    try:
        trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.pattern(
    "a part of the model wrapped in DDP, or any in DataParallel",
    refused="`exchanges gradients by itself; ...`",
)
def test_a_wrapped_part_of_a_model_is_refused(rank_pool: RankPool) -> None:
    for said in rank_pool.run_in_process_group(SIZE, inside_another):
        assert said.startswith("model: 'DistributedDataParallel': exchanges gradients by itself")
        assert "attach a model whose 0 is the module inside" in said


def save_whole(rank: int, size: int, folder: Path, plan: str) -> list[tuple[bool, bool]]:
    """After each step: whether model and wrapper, saved whole and read back, have its weights; and what copies change.

    What was saved is read, and both are trained, while the session goes on.
    """
    os.chdir(folder)
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ddp = DistributedDataParallel(model)
    session = trimtab.attach(ddp, optimizer, plan=plan)
    seen = []
    for number in range(STEPS):
        loss_of(ddp, number, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        saved = io.BytesIO()
        torch.save((model, ddp), saved)  # with whatever was still on its way
        trained = weights_of(model)
        saved.seek(0)
        read, wrapper = torch.load(saved, weights_only=False)
        are_alike = torch.equal(weights_of(read), trained) and torch.equal(weights_of(wrapper.module), trained)
        for each in (read, copy.deepcopy(model)):
            loss_of(each, number, rank).backward()
            torch.optim.SGD(each.parameters(), lr=1.0).step()
        seen.append((are_alike and type(wrapper) is DistributedDataParallel, torch.equal(weights_of(model), trained)))
    session.close()
    return seen


@pytest.mark.pattern(
    "`torch.save(model)`, `torch.save(ddp_model)`, `copy.deepcopy(model)`",
    works="works; files are read without trimtab",
)
@pytest.mark.parametrize("plan", ["dense", "0.5/all-gather/schedule=priority"])
def test_a_model_is_saved_and_copied_whole_while_it_trains(rank_pool: RankPool, tmp_path: Path, plan: str) -> None:
    for seen in rank_pool.run_in_process_group(SIZE, save_whole, tmp_path, plan):
        assert seen == [(True, True)] * STEPS


def test_what_was_saved_whole_is_read_without_trimtab(tmp_path: Path) -> None:
    model = model_of()
    model[0].register_forward_pre_hook(ModuleHook(lambda *_: pytest.fail("the hook of the model that trains")))
    torch.save(model, tmp_path / "model.pt")
    assert b"trimtab" not in (tmp_path / "model.pt").read_bytes()
    torch.load(tmp_path / "model.pt", weights_only=False)(torch.ones(1, 4))
    with pytest.raises(pytest.fail.Exception):
        model(torch.ones(1, 4))
