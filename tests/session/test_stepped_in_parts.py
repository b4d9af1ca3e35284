"""Optimizers whose step is one whole have all gradients before it, and hooks on it are called once a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kit.training.late_ranks import LATE, STEPS, Script, assert_as_wait_free, plain, trained
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from trimtab.engine.optimizer.partial_steps import partial_step_unsupported_reason


class GlobalNorm(torch.optim.SGD):
    """Normalizes by the norm of all gradients, as LAMB does."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        of = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        nn.utils.clip_grad_norm_(of, 0.05)
        super().step(closure)


class CountsInItsGroup(torch.optim.Optimizer):
    """Adam's first moment with the number of steps in the group, as timm and apex keep it."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.05, "step": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["step"] += 1
            for p in group["params"]:
                if p.grad is not None:
                    mean = self.state[p].setdefault("mean", torch.zeros_like(p)).lerp_(p.grad, 0.1)
                    p.sub_(mean / (1 - 0.9 ** group["step"]), alpha=group["lr"])


def clips_in_a_hook(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: [nn.utils.clip_grad_norm_(model.parameters(), 0.05), None][1])
    return optimizer


def replaced_step(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = optimizer.step

    def clipped(*args: Any) -> Any:
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        return step(*args)

    optimizer.step = clipped  # type: ignore[method-assign]
    return optimizer


WHOLE: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "by a global norm": lambda model: GlobalNorm(model.parameters(), lr=0.1),
    "counts in its group": lambda model: CountsInItsGroup(model.parameters()),
    "clips in a hook": clips_in_a_hook,
    "replaced step": replaced_step,
}


@pytest.mark.pattern(
    "optimizers that cannot step in parts (LAMB), and optimizer hooks, with deferred gradients",
    works="each step waits for all gradients",
)
@pytest.mark.parametrize("schedule", LATE)
@pytest.mark.parametrize("optimizer", WHOLE)
def test_a_step_that_is_one_whole_has_all_gradients(
    schedule: str, optimizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of = assert_as_wait_free(schedule, make_optimizer=WHOLE[optimizer])
    assert of.num_late == 0
    assert capsys.readouterr().err.count("so each step waits for all gradients") == 1


def test_an_average_kept_by_a_hook_is_of_whole_steps() -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        if number == 0:
            of.kept["average"] = AveragedModel(of.model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
        of.model(x).square().mean().backward()
        if number == 0:  # after the backward pass that has left some late
            of.optimizer.register_step_post_hook(lambda *_: of.kept["average"].update_parameters(of.model))
        of.session.step()
        of.seen.append(of.kept["average"].n_averaged.clone())
        of.seen.extend(p.detach().clone() for p in of.kept["average"].parameters())

    assert_as_wait_free(LATE[0], step)


def test_global_hooks_are_called_once_a_step() -> None:
    called: list[torch.optim.Optimizer] = []
    hook = register_optimizer_step_post_hook(lambda optimizer, *_: called.append(optimizer))
    try:
        of, _ = trained(LATE[0])
    finally:
        hook.remove()
    assert sum(each is of.optimizer for each in called) == STEPS


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "Adagrad", "RMSprop", "Adafactor"])
def test_torch_s_own_step_in_parts(name: str) -> None:
    of = assert_as_wait_free(LATE[0], make_optimizer=lambda model: getattr(torch.optim, name)(model.parameters(), 0.01))
    assert of.num_late == STEPS


def test_a_scheduler_that_wraps_step_and_a_learning_rate_that_is_a_tensor_stay_what_they_are() -> None:
    def scheduled(model: nn.Module) -> torch.optim.Optimizer:
        optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.02))
        optimizer.kept = optimizer.param_groups[0]["lr"]  # type: ignore[attr-defined]
        optimizer.cycle = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)  # type: ignore[attr-defined]
        return optimizer

    def step(of: Script, x: Tensor, number: int) -> None:
        plain(of, x, number)
        of.optimizer.cycle.step()  # type: ignore[attr-defined]

    of = assert_as_wait_free(LATE[0], step, make_optimizer=scheduled)
    assert of.num_late == STEPS
    assert of.optimizer.param_groups[0]["lr"] is of.optimizer.kept  # type: ignore[attr-defined]


def test_why_is_said() -> None:
    sgd = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    assert partial_step_unsupported_reason([sgd]) == ""
    assert partial_step_unsupported_reason([sgd, sgd]) == "several optimizers step together"
    sgd.register_step_post_hook(lambda *_: None)
    assert partial_step_unsupported_reason([sgd]) == "hooks are registered on the steps of SGD"
