"""Gradients that arrive after the optimizer's step: a script that uses one waits for it, one that does not does not."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from kit.training.late_ranks import LATE, STEPS, WIDTH, Script, assert_as_wait_free, by_name, plain, trained
from torch import Tensor, nn
from trimtab.engine.exchange.arrivals import LazyGradient

Habit = Callable[[Script], None]
"""What a script does between ``backward()`` and its step."""


def clips(of: Script) -> None:
    of.seen.append(nn.utils.clip_grad_norm_(of.model.parameters(), 0.05).clone())


def clips_hardly(of: Script) -> None:
    """By a limit between the norm of what is there at first and that of all."""
    of.seen.append(nn.utils.clip_grad_norm_(of.model.parameters(), 0.23).clone())


def clips_each_layer(of: Script) -> None:
    for layer in of.model.children():
        if list(layer.parameters()):
            nn.utils.clip_grad_norm_(layer.parameters(), 0.02)


def clips_by_value(of: Script) -> None:
    nn.utils.clip_grad_value_(of.model.parameters(), 0.001)


def looks(of: Script) -> None:
    """By attributes, methods and functions, of one tensor or several."""
    for p in of.model.parameters():
        assert p.grad is not None
        of.seen.append(p.grad.data.clone())
        of.seen.append(torch.stack([p.grad.norm(), p.grad.abs().max(), torch.tensor(float(p.grad.numpy().sum()))]))
    of.seen.append(nn.utils.parameters_to_vector(p.grad for p in of.model.parameters()))


def copies(of: Script) -> None:
    saved = io.BytesIO()
    gradients = [p.grad for p in of.model.parameters()]
    torch.save(gradients[1:2], saved)
    saved.seek(0)
    for each in (*torch.load(saved), *copy.deepcopy(gradients)):
        assert type(each) is Tensor
        of.seen.append(each)


def changes_in_place(of: Script) -> None:
    for p in of.model.parameters():
        p.grad += 0.001
        p.grad.mul_(0.5)
        p.grad.data.clamp_(-0.01, 0.01)


def replaces(of: Script) -> None:
    for number, p in enumerate(of.model.parameters()):
        p.grad = p.grad * 0.5 if number % 2 else torch.full_like(p, 0.01)


def replaces_unseen(of: Script) -> None:
    for p in of.model.parameters():
        p.grad = torch.full_like(p, 0.01)


def takes_some_away(of: Script) -> None:
    list(of.model.parameters())[-1].grad = None
    next(of.model.parameters()).grad = None


def synchronizes(of: Script) -> None:
    of.session.synchronize()
    assert not any(isinstance(p.grad, LazyGradient) for p in of.model.parameters())
    clips(of)


HABITS: dict[str, Habit] = by_name(
    clips,
    clips_hardly,
    clips_each_layer,
    clips_by_value,
    looks,
    copies,
    changes_in_place,
    replaces,
    replaces_unseen,
    takes_some_away,
    synchronizes,
)


@pytest.mark.pattern(
    "clipping and logging norms: with deferred gradients",
    works="reading a deferred gradient waits for it",
)
@pytest.mark.parametrize("text", ["dense", "0.1/all-gather"])
@pytest.mark.parametrize("schedule", LATE)
@pytest.mark.parametrize("habit", HABITS)
def test_whatever_a_script_does_with_gradients_it_has_the_means(habit: str, schedule: str, text: str) -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        of.model(x).square().mean().backward()
        HABITS[habit](of)
        of.session.step()

    assert_as_wait_free(schedule, step, text=text)


def two_tensors() -> nn.Module:
    """In three buffers, so that none of them is whole at first."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32, bias=False), nn.Tanh(), nn.Linear(32, 4, bias=False))


def test_where_no_tensor_is_whole_the_norm_is_that_of_all() -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        of.model(x).square().mean().backward()
        clips(of)
        of.session.step()

    assert_as_wait_free(LATE[0], step, make_model=two_tensors)


class Branching(nn.Module):
    """One layer stays unused."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.unused, self.last = nn.Linear(WIDTH, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.tanh(self.first(x)))
        return out


@pytest.mark.parametrize("schedule", LATE)
def test_what_no_rank_uses_has_no_gradient_also_where_it_is_late(schedule: str) -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        of.model(x).square().mean().backward()
        of.seen.append(torch.tensor([p.grad is None for p in of.model.parameters()]))
        of.session.step()

    of = assert_as_wait_free(schedule, step, make_model=Branching)
    assert of.seen[0].tolist() == [False, False, True, True, False, False]


@pytest.mark.parametrize("clears", ["at once", "to zeros", "before backward", "never"])
def test_gradients_stay_after_the_script_s_own_step_until_it_clears_them(clears: str) -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        loss = of.model(x).square().mean()
        if clears == "before backward":
            of.optimizer.zero_grad()
        loss.backward()
        of.optimizer.step()
        of.look()
        if clears in ("at once", "to zeros"):
            of.optimizer.zero_grad(set_to_none=clears == "at once")
        elif number % 2:
            of.seen.append(nn.utils.parameters_to_vector(p.grad for p in of.model.parameters()))

    assert assert_as_wait_free(LATE[0], step).num_late >= STEPS


def test_a_gradient_that_was_kept_is_the_mean_after_the_step() -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        of.model(x).square().mean().backward()
        kept = [p.grad for p in of.model.parameters()]
        of.session.step()
        of.seen.extend(each.clone() for each in kept if each is not None)

    assert_as_wait_free(LATE[1], step)


@pytest.mark.parametrize("schedule", LATE)
def test_a_script_that_leaves_gradients_alone_waits_for_none(schedule: str) -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        of.optimizer.zero_grad()
        of.model(x).square().mean().backward()
        assert any(isinstance(p.grad, LazyGradient) for p in of.model.parameters())
        of.session.step()

    assert trained(schedule, step)[0].num_late == STEPS
    assert trained(schedule, plain)[0].num_late == STEPS


def test_a_step_thrown_away_for_its_norm_leaves_no_trace() -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        (of.model(x).square().mean() * (1000 if number == 2 else 1)).backward()
        if nn.utils.clip_grad_norm_(of.model.parameters(), 1.0) > 50:
            of.seen.append(torch.tensor(number))
            of.optimizer.zero_grad()
            return
        of.session.step()

    of = assert_as_wait_free(LATE[0], step)
    assert [each.item() for each in of.seen] == [2]
