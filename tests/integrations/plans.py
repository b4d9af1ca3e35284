"""What the scripts of this folder train, and under which plans: ``own`` is the framework by itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from kit.chosen_plan import choose as choose

PLANS = ("own", "dense", "0.01/all-gather", "adaptive")
NUM_NODES = int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"])
_OUT = Path(sys.argv[1])


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))


def data() -> TensorDataset:
    inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def run_directory(plan: str) -> Path:
    return _OUT / plan.replace("/", "-")


def say(plan: str, what: str, *figures: object) -> None:
    """Write down what this rank has seen, with every digit."""
    with (_OUT / f"rank-{os.environ['RANK']}.txt").open("a") as file:
        print(plan, what, *map(repr, figures), file=file)


def say_weights(plan: str, model: nn.Module) -> None:
    say(plan, "weights", *(float(p.detach().double().sum()) for p in model.parameters()))
