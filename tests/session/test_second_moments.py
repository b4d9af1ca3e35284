"""Local steps leave Adam the second moments that steps on the mean gradient of all ranks would leave it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from trimtab.engine.local_sgd.second_moments import SecondMoments

RANKS = 4
NUM_STEPS = 300


def gradients(signal: float) -> Tensor:
    """Of each step and rank: noise of variance 1 about a constant."""
    return signal + torch.randn(NUM_STEPS, RANKS, 40, 50, generator=torch.Generator().manual_seed(0))


def moment(gradients: Tensor, optimizer: Any, ranks: int, local: bool = True, **options: Any) -> Tensor:
    """The second moment that steps by these gradients leave, as one of so many ranks, or as all of them."""
    parameter = nn.Parameter(torch.zeros(40, 50))
    stepping = optimizer([parameter], lr=1e-3, **options)
    moments = SecondMoments([stepping], ranks, lambda: local)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        stepping.step()
    moments.close()
    return stepping.state[parameter]["exp_avg_sq"]


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam])
@pytest.mark.parametrize("signal", [0.0, 0.5, 3.0])
def test_one_ranks_second_moment_is_that_of_the_mean_gradient(signal: float, optimizer: Any) -> None:
    each = gradients(signal)
    of_the_mean = moment(each.mean(1), optimizer, 1)
    local = moment(each[:, 0], optimizer, RANKS)
    as_it_was = moment(each[:, 0], optimizer, RANKS, local=False)
    assert float(local.mean() / of_the_mean.mean()) == pytest.approx(1, abs=0.06)
    expected = (signal**2 + 1) / (signal**2 + 1 / RANKS)
    assert float(as_it_was.mean() / of_the_mean.mean()) == pytest.approx(expected, rel=0.1), (
        "four times where all is noise"
    )


@pytest.mark.parametrize("memory", [0.9, 0.999])
def test_a_gradient_without_noise_keeps_its_square(memory: float) -> None:
    constant = torch.randn(40, 50, generator=torch.Generator().manual_seed(1)).expand(NUM_STEPS, 40, 50)
    betas = (0.9, memory)
    cut, plain = (moment(constant, torch.optim.AdamW, ranks, betas=betas) for ranks in (RANKS, 1))
    torch.testing.assert_close(cut, plain, rtol=1e-3, atol=1e-7)


def test_nothing_is_cut_where_the_first_moment_tells_nothing_or_there_is_no_second() -> None:
    noise = gradients(0.0)[:20, 0]
    cut, plain = (moment(noise, torch.optim.Adam, ranks, betas=(0.0, 0.99)) for ranks in (RANKS, 1))
    assert torch.equal(cut, plain)
    parameter = nn.Parameter(torch.zeros(40, 50))
    stepping = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    moments = SecondMoments([stepping], RANKS, lambda: True)
    parameter.grad = noise[0]
    stepping.step()
    moments.close()
    assert torch.equal(parameter.detach(), -0.1 * noise[0])


@pytest.mark.parametrize("poison", [0.0, 1e30, float("inf")])
def test_no_gradient_makes_a_second_moment_what_adam_would_not_have_made_it(poison: float) -> None:
    """Zeros, squares that are infinite, and what a script lets through."""
    gradient = torch.full((3, 40, 50), poison)
    cut, plain = (moment(gradient, torch.optim.AdamW, ranks) for ranks in (RANKS, 1))
    assert torch.equal(cut.isfinite(), plain.isfinite())
    assert (cut[cut.isfinite()] >= 0).all()


class StepsWithin(torch.optim.AdamW):
    """A subclass whose step calls its parent's, around both of which torch calls hooks."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def test_a_step_within_a_step_is_cut_once() -> None:
    noise = gradients(0.0)[:20, 0]
    assert torch.equal(moment(noise, StepsWithin, RANKS), moment(noise, torch.optim.AdamW, RANKS))


def test_a_parameter_without_a_gradient_keeps_its_moment() -> None:
    parameter = nn.Parameter(torch.zeros(40, 50))
    stepping = torch.optim.AdamW([parameter], lr=1e-3)
    moments = SecondMoments([stepping], RANKS, lambda: True)
    parameter.grad = gradients(0.0)[0, 0]
    stepping.step()
    before = stepping.state[parameter]["exp_avg_sq"].clone()
    parameter.grad = None
    stepping.step()
    moments.close()
    assert torch.equal(stepping.state[parameter]["exp_avg_sq"], before)
