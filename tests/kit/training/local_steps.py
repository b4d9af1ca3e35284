"""Rounds of local steps of the small regression, by a session and by hand."""

from __future__ import annotations

from dataclasses import replace

import torch
from kit.training.held_back import residual_of
from kit.training.random_training import network
from kit.training.regression import SIZE, backward
from kit.training.scripted_control import Script
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.control.messages import TryPlans
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.session.session import Session


def plan_of(text: str, steps: int) -> Plan:
    return replace(Plan.parse(text, FusionPlan((0, 20))), source=f"update:steps={steps}")


def take_step(session: Session, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None) -> None:
    """By the script's own scaler, or by the session."""
    if scaler is None:
        session.step()
        return
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def moments_of(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
    state = optimizer.state.get(parameter, {})
    return tuple(state.get(name, torch.zeros_like(parameter)) for name in ("exp_avg", "exp_avg_sq"))


def cut_noise(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, before: Tensor, step: int) -> None:
    """Leave Adam's second moment what the mean gradient's noise would have added to it (`second_moments`)."""
    mean, square = moments_of(optimizer, parameter)
    if not square.any():
        return
    added = square - 0.999 * before
    in_square, in_mean = added.mean() / 0.001, mean.square().mean() / (1 - 0.9**step) ** 2
    noise = min(1.0, max(0.0, float((in_square - in_mean) / in_square / (1 - 0.1 / 1.9))))
    square.sub_(noise * (1 - 1 / SIZE) * added)


def step_by_hand(model: nn.Module, stepping: torch.optim.Optimizer, number: int, rank: int) -> None:
    """A local step of one rank, the ``number``-th from 0."""
    stepping.zero_grad()
    backward(model, number, rank)
    before = [moments_of(stepping, each)[1].clone() for each in model.parameters()]
    stepping.step()
    for each, was in zip(model.parameters(), before, strict=True):
        cut_noise(stepping, each, was, number + 1)


def with_trials(rank: int, size: int, in_force: Plan, candidates: list[Plan], runs: bool) -> tuple[Tensor, Tensor, int]:
    model = network()
    trials = TryPlans(tuple(candidates), 4)
    script = Script({3: trials} if runs else {}) if rank == 0 else None
    session = attach(model, torch.optim.AdamW(model.parameters(), lr=0.01), in_force, control_client=script)
    torch.manual_seed(rank)
    x = torch.randn(600, 8, generator=torch.Generator().manual_seed(1))
    for (inputs,) in session.batches(DataLoader(TensorDataset(x), batch_size=10)):
        model(inputs).square().mean().backward()
        session.step()
    residual = residual_of(session)
    session.close()
    return weights_of(model), residual, len(script.reports) if script else 0
