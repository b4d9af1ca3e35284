"""A backward pass is an exchange: when it returns, gradients are the mean over ranks, whatever hooks into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kit.fusion_plans import cut_before
from kit.rank_pool import RankPool
from kit.training.random_training import STEPS, loader, make_session, network
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

LAYER_EACH = FusionPlan((0, 64, 128))
PLANS = ("0.2/all-gather", "0.1/artopk-star-ring", "dense")


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(3)))


def attach(model: nn.Module, plan: str = "dense", optimizer: torch.optim.Optimizer | None = None) -> Session:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    parsed = Plan.parse(plan, LAYER_EACH)
    return Session(model, optimizer, group=Group.connect(), plan=parsed, recorder=Recorder(None))


# Clipping, as scripts do it ------------------------------------------------------------------------------------------


def clipping(rank: int, size: int, plan: str) -> tuple[Tensor, list[float]]:
    model = network()
    session, _, _ = make_session(Plan.parse(plan, cut_before(model, 0, 2, 4)), model)
    torch.manual_seed(rank)
    norms = []
    for taken, (x, y) in enumerate(session.batches(loader()), 1):
        nn.functional.cross_entropy(model(x), y).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.05)))
        session.step()
        if taken == STEPS:
            break
    session.close()
    return weights_of(model), norms


@pytest.mark.pattern("clipping and logging norms", works="works between `backward()` and the step")
@pytest.mark.parametrize("plan", PLANS)
def test_clipping_between_backward_and_step_sees_the_mean_on_every_rank(plan: str, rank_pool: RankPool) -> None:
    (weights, norms), *others = rank_pool.run_in_process_group(3, clipping, plan)
    assert max(norms) > 0.05, "nothing was clipped"
    for other, other_norms in others:
        assert torch.equal(other, weights)
        assert other_norms == norms


def changing_after(rank: int, size: int) -> tuple[Tensor, Tensor]:
    model = layers()
    session = attach(model)
    model(torch.randn(4, 8, generator=torch.Generator().manual_seed(rank))).square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad = parameter.grad.sign()
    before = weights_of(model)
    signs = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    session.step()
    session.close()
    return before - weights_of(model), signs


def test_a_gradient_put_in_place_of_the_mean_is_what_the_optimizer_takes(rank_pool: RankPool) -> None:
    for moved, signs in rank_pool.run_in_process_group(2, changing_after):
        torch.testing.assert_close(moved, 0.1 * signs)


# Hooks of others -----------------------------------------------------------------------------------------------------


def hooked(rank: int, size: int, kind: str) -> tuple[list[float], Tensor]:
    """The largest element of each local gradient as a hook of the script sees it; the hook makes it a hundredth."""
    model = layers()
    session = attach(model)
    seen: list[float] = []

    def on_tensor(grad: Tensor) -> Tensor:
        seen.append(float(grad.abs().max()))
        return grad / 100

    def on_accumulated(parameter: Tensor) -> None:
        assert parameter.grad is not None
        seen.append(float(parameter.grad.abs().max()))
        parameter.grad /= 100

    for parameter in model.parameters():
        if kind == "tensor":
            parameter.register_hook(on_tensor)
        else:
            parameter.register_post_accumulate_grad_hook(on_accumulated)
    before = weights_of(model)
    (weights_of_graph(model) * (rank + 1)).sum().backward()
    session.step()
    session.close()
    return seen, before - weights_of(model)


def weights_of_graph(model: nn.Module) -> Tensor:
    return torch.cat([parameter.reshape(-1) for parameter in model.parameters()])


@pytest.mark.pattern("hooks on parameters", works="see and change the rank's own gradient")
@pytest.mark.parametrize("kind", ["tensor", "accumulated"])
def test_hooks_registered_after_attach_change_the_local_gradient_before_it_is_sent(
    kind: str, rank_pool: RankPool
) -> None:
    for rank, (seen, moved) in enumerate(rank_pool.run_in_process_group(2, hooked, kind)):
        assert seen == [rank + 1.0] * 3, "each rank's own"
        torch.testing.assert_close(moved, torch.full_like(moved, 0.1 * 1.5 / 100))


# Passes inside passes, and passes that fail --------------------------------------------------------------------------


def all_checkpointed(model: nn.Sequential, x: Tensor) -> Tensor:
    return checkpoint(model, x, use_reentrant=True)


def middle_checkpointed(model: nn.Sequential, x: Tensor) -> Tensor:
    return model[2](checkpoint(model[1], model[0](x), use_reentrant=True))


def checkpointed_twice(model: nn.Sequential, x: Tensor) -> Tensor:
    inside = lambda z: checkpoint(model[:2], z, use_reentrant=True)  # noqa: E731
    return model[2](checkpoint(inside, x * 1, use_reentrant=True))


def first_checkpointed(model: nn.Sequential, x: Tensor) -> Tensor:
    return model[2](model[1](checkpoint(model[0], x, use_reentrant=True)))


def plain(model: nn.Sequential, x: Tensor) -> Tensor:
    return model(x)


def forward_by(rank: int, size: int, forward: Callable[..., Tensor], plan: str) -> tuple[Tensor, bool]:
    model = layers()
    session = attach(model, plan)
    is_finished = True
    for step in range(4):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank)).requires_grad_()
        forward(model, x).square().mean().backward()
        is_finished &= session.debug_state().phase == "exchanged"
        session.step()
    session.close()
    return weights_of(model), is_finished


@pytest.mark.pattern("activation checkpointing, reentrant", works="works")
@pytest.mark.parametrize("plan", PLANS[1:])
@pytest.mark.parametrize("forward", [all_checkpointed, middle_checkpointed, checkpointed_twice, first_checkpointed])
def test_reentrant_checkpointing_changes_no_bit_and_ends_with_the_outermost_pass(
    forward: Callable[..., Tensor], plan: str, rank_pool: RankPool
) -> None:
    ours = rank_pool.run_in_process_group(2, forward_by, forward, plan)
    plainly = rank_pool.run_in_process_group(2, forward_by, plain, plan)
    for weights, is_finished in ours:
        assert is_finished, "gradients were not final when backward returned"
        assert torch.equal(weights, plainly[0][0])


def with_autograd_grad(rank: int, size: int, penalty: bool) -> tuple[Tensor, bool]:
    """A gradient penalty: a gradient taken by `autograd.grad` enters the loss."""
    model = layers()
    session = attach(model)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(rank)).requires_grad_()
    torch.autograd.grad(model(x).sum(), list(model.parameters()))
    untouched = session.debug_state().phase == "idle" and all(p.grad is None for p in model.parameters())
    loss = model(x).square().mean()
    if penalty:
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = loss + slope.square().mean()
    loss.backward()
    session.step()
    session.close()
    return weights_of(model), untouched


@pytest.mark.pattern("`torch.autograd.grad`", works="exchanges nothing")
def test_autograd_grad_is_no_backward_pass(rank_pool: RankPool) -> None:
    with_penalty = rank_pool.run_in_process_group(2, with_autograd_grad, True)
    without = rank_pool.run_in_process_group(2, with_autograd_grad, False)
    assert all(untouched for _, untouched in with_penalty)
    assert torch.equal(with_penalty[0][0], with_penalty[1][0])
    assert not torch.equal(with_penalty[0][0], without[0][0])


def failing(rank: int, size: int, then: str, fails_at: int) -> str:
    """An exception in the middle of backward, caught by the script, which then goes on."""
    model = layers()
    session = attach(model)

    def fail(_: Tensor) -> None:
        raise ZeroDivisionError

    inputs: list[Tensor] = [torch.randn(4, 8).requires_grad_()]
    for layer in model:
        inputs.append(layer(inputs[-1]))
    inputs[fails_at].register_hook(fail)
    with pytest.raises(ZeroDivisionError):
        inputs[-1].sum().backward()
    try:
        if then == "backward":
            model(torch.randn(4, 8)).sum().backward()
        session.step()
    except Exception as error:
        return str(error)
    return "went on"


@pytest.mark.parametrize("then", ["backward", "step"])
def test_going_on_after_a_failed_pass_is_refused_once_part_of_it_was_sent(then: str, rank_pool: RankPool) -> None:
    for message in rank_pool.run_in_process_group(2, failing, then, 1):
        assert "raised an exception" in message
        assert "let the exception end this rank" in message.lower()


def test_a_pass_that_failed_before_any_gradient_can_be_repeated(rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(2, failing, "backward", 3) == ["went on"] * 2


def stepping_all_the_same(rank: int, size: int) -> str:
    """A script that catches the refusal of a second pass, and steps."""
    model = layers()
    session = attach(model)
    model(torch.randn(4, 8)).sum().backward()
    with pytest.raises(Exception, match="the mean over ranks of the previous"):
        model(torch.randn(4, 8)).sum().backward()
    try:
        session.step()
    except Exception as error:
        return str(error)
    return ""


def test_a_step_after_a_refused_pass_is_refused_too(rank_pool: RankPool) -> None:
    for message in rank_pool.run_in_process_group(2, stepping_all_the_same):
        assert "still the mean over ranks of the previous backward pass" in message


def accumulating_too_late(rank: int, size: int) -> str:
    model = layers()
    session = attach(model)
    model(torch.randn(4, 8)).sum().backward()
    try:
        with session.no_sync():
            model(torch.randn(4, 8)).sum().backward()
    except Exception as error:
        return str(error)
    return ""


def test_accumulating_onto_the_mean_is_refused_in_no_sync_too(rank_pool: RankPool) -> None:
    for message in rank_pool.run_in_process_group(2, accumulating_too_late):
        assert "still the mean over ranks of the previous backward pass" in message


# What a script left in place -----------------------------------------------------------------------------------------


def stepping_twice(rank: int, size: int) -> str:
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = attach(model, optimizer=optimizer)
    model(torch.randn(4, 8)).sum().backward()
    session.step()
    try:
        optimizer.step()
    except Exception as error:
        return str(error)
    return ""


def test_an_optimizer_step_left_in_place_is_named(rank_pool: RankPool) -> None:
    for message in rank_pool.run_in_process_group(2, stepping_twice):
        assert "session.step(loss) without optimizer.step()" in message


def closing(rank: int, size: int) -> tuple[Any, ...]:
    """After `close` the model is the script's alone again."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = attach(model, optimizer=optimizer)
    model(torch.randn(4, 8)).sum().backward()
    session.step()
    session.close()
    x = torch.full((4, 8), float(rank))
    model(x).sum().backward()
    before = weights_of(model)
    optimizer.step()
    hooks = [len(parameter._post_accumulate_grad_hooks or {}) for parameter in model.parameters()]
    return float(model[0].weight.grad.abs().sum()), float((before - weights_of(model)).abs().sum()), hooks


def test_close_takes_every_hook_away(rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, closing)
    assert first[0] == 0.0, "its own gradient, of inputs of zeros"
    assert second[0] > 0.0
    assert second[1] > 0.0, "the optimizer steps by hand"
    assert first[2] == second[2] == [0, 0, 0]
