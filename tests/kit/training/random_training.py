"""A training that draws random numbers wherever a script may: its network, data, session, loop, and whole state."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import torch
from kit.training.held_back import residual_of
from kit.training.sessions import attach
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.control.messages import TryPlans
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.session.session import Session

THREE_BUFFERS = FusionPlan((0, 68, 596))
STEPS = 12
OPTIMIZERS: dict[str, Any] = {
    "SGD": partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "AdamW": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
    "AdamW with AMSGrad": partial(torch.optim.AdamW, lr=0.01, amsgrad=True),
}


def network() -> nn.Module:
    """Seven trainable tensors, dropout and batch statistics: whatever a step may touch."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)
    )


class Augmented(TensorDataset):
    """Draws from the global generators whenever a sample is read, as augmentations do."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        noise = torch.randn(x.shape) * 0.1 + float(np.random.rand()) + random.random()
        return x + noise, y


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(320, 8, generator=generator)
    y = torch.randint(0, 4, (320,), generator=generator)
    return DataLoader(Augmented(x, y), batch_size=8, shuffle=True)


def make_session(
    plan: Plan, model: nn.Module, optimizer: str = "SGD", **options: Any
) -> tuple[Session, torch.optim.Optimizer, Any]:
    stepping = OPTIMIZERS[optimizer](model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(stepping, step_size=4, gamma=0.5)
    session = attach(model, stepping, plan, scheduler=scheduler, scheduler_interval="step", **options)
    return session, stepping, scheduler


def train(session: Session, model: nn.Module, steps: int = STEPS) -> list[float]:
    losses, taken = [], 0
    for x, y in session.batches(loader()):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        session.step(loss)
        if not session.in_trial:
            losses.append(loss.item())
            taken += 1
        if taken == steps and not session.in_trial:
            break
    return losses


def state(session: Session, model: nn.Module, optimizer: Any, scheduler: Any) -> dict[str, Any]:
    return {
        "weights": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "momenta": [(name, s[name].clone()) for s in optimizer.state.values() for name in sorted(s)],
        "scheduler": scheduler.state_dict()["last_epoch"],
        "rate": optimizer.param_groups[0]["lr"],
        "residual": residual_of(session),
        "random": (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()),
    }


def assert_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    for name, tensor in a["weights"].items():
        assert torch.equal(tensor, b["weights"][name]), name
    assert a["momenta"], "the optimizer has moments"
    for (name, x), (other, y) in zip(a["momenta"], b["momenta"], strict=True):
        assert name == other
        assert torch.equal(x, y), name
    assert torch.equal(a["residual"], b["residual"])
    assert (a["scheduler"], a["rate"]) == (b["scheduler"], b["rate"])
    assert torch.equal(a["random"][0], b["random"][0])
    assert a["random"][1:] == b["random"][1:]


def trials_message() -> TryPlans:
    candidates = [Plan.parse(text, THREE_BUFFERS) for text in ("0.3/all-gather", "dense", "0.05/artopk-var-tree")]
    return TryPlans(tuple(candidates), 4)
