"""A script may change torch's default type: whatever Trimtab makes of its own has a type that it names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from queue import SimpleQueue

import pytest
import torch
import trimtab
from kit.in_process import InProcess, Queues
from torch import nn
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.catalogue import collectives, planners, schedules, sparsifiers, wires

SIZE, STEPS = 2, 3
#: Rooms whose code stands for a script's: the models that benchmarks and examples train.
MODELS = ("workloads", "evaluation", "cli")
#: What makes a tensor whose type is the default one unless it is named.
MAKERS = frozenset(
    ("zeros", "ones", "empty", "full", "tensor", "arange", "rand", "randn", "linspace", "logspace", "eye", "as_tensor")
)
#: A plan of each family: every row of every axis once.
PLANS = (
    "dense",
    *(f"0.25/{name}" for name in collectives.names() if not name.startswith("dense")),
    *(f"0.25/all-gather/sparsifier={name}" for name in sparsifiers.names() if name != "hard-threshold"),
    "0.25/all-gather/sparsifier=hard-threshold:threshold=0.01",
    *(f"0.25/all-gather/wire={name}" for name in wires.names()),
    *(f"dense/fusion={name}" for name in planners.names() if name not in ("cuts", "equal")),
    *(f"0.25/all-gather/schedule={name}" for name in schedules.names() if name != "overlap"),
    "0.25/all-gather/source=update:steps=1",
    "dense/source=update:steps=2",
    "0.25/all-gather/schedule=overlap/source=update:steps=2",
)


def made_without_a_type(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_call and isinstance(node.func.value, ast.Name) and node.func.value.id == "torch":
            has_type = any(keyword.arg == "dtype" for keyword in node.keywords)
            if node.func.attr in MAKERS and not has_type:
                yield f"{file.name}:{node.lineno}: torch.{node.func.attr}"


def test_no_tensor_takes_its_type_from_the_default() -> None:
    room = Path(trimtab.__file__).parent
    files = [file for file in room.rglob("*.py") if file.relative_to(room).parts[0] not in MODELS]
    assert len(files) > 200
    assert [line for file in files for line in made_without_a_type(file)] == []


def train(rank: int, model: nn.Module, plan: Plan, queues: Queues) -> list[torch.Tensor]:
    """The weights of a float32 model after some steps."""
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(STEPS, 8, 16, dtype=torch.float32, generator=generator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    group = Group(InProcess(rank, SIZE, queues))
    session = Session(model, optimizer, group=group, plan=plan, recorder=Recorder(None))
    try:
        for batch in inputs:
            loss = model(batch).square().mean()
            loss.backward()
            session.step(loss)
        session.end_round()
        assert session.all_reduce(1.5) == 1.5
        return [parameter.detach().clone() for parameter in model.parameters()]
    finally:
        session.close()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))


def trained(plan: str, default: torch.dtype) -> list[list[torch.Tensor]]:
    """Each rank's weights where the default type was changed once the model was there."""
    models = [network() for _ in range(SIZE)]
    queues: Queues = {way: SimpleQueue() for way in permutations(range(SIZE), 2)}
    torch.set_default_dtype(default)
    try:
        with ThreadPoolExecutor(SIZE) as pool:
            runs = [pool.submit(train, rank, model, Plan.parse(plan), queues) for rank, model in enumerate(models)]
            return [run.result() for run in runs]
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.pattern(
    "`torch.set_default_dtype` to float64 or bfloat16, around a float32 model", works="trains as without it"
)
@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_trains_the_same_under_another_default_type(plan: str) -> None:
    expected = trained(plan, torch.float32)
    for default in (torch.bfloat16, torch.float64):
        for ours, theirs in zip(trained(plan, default), expected, strict=True):
            assert all(map(torch.equal, ours, theirs))
