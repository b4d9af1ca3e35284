"""A schedule may let means arrive by the next forward pass: weights are then what they are when all is waited for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training import toy_schedules
from kit.training.engines import engine_of
from kit.training.sessions import attach
from torch import Tensor, nn
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

SIZE = 3
LATE = ("toy-last-first", "toy-only-last-awaited")


class Attention(nn.Module):
    """Uses its projection's weight without running the projection, as torch's attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 2, 8)
        return self.out(self.attention(x, x, x)[0]).flatten(1)


class Tied(nn.Module):
    """One weight, used by two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.out = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 1)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.last(torch.tanh(self.first(x)))))


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 1))


def compiled() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 8), torch.compile(nn.Linear(8, 1), backend="eager"))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "layers": layers,
    "attention": Attention,
    "tied": Tied,
    "compiled": compiled,
}


def plan_of(text: str, schedule: str) -> Plan:
    toy_schedules.register()
    return replace(Plan.parse(text, FusionPlan((0, 30, 100))), schedule=schedule)


def weights(model: nn.Module) -> Tensor:
    """As a checkpoint would have them."""
    return torch.cat([value.flatten() for value in model.state_dict().values()]).clone()


def train(
    rank: int, size: int, model_name: str, text: str, schedule: str, optimizer_name: str, events: dict[int, str]
) -> list[Any]:
    """The weights after some steps, with whatever the events are between them."""
    plan = plan_of(text, schedule)
    torch.manual_seed(0)
    model = MODELS[model_name]()
    if optimizer_name == "SGD":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    session = attach(model, optimizer, plan, scheduler=scheduler)
    seen: list[Any] = []
    for number in range(8):
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(100 * number + rank))
        event = events.get(number)
        if event == "evaluate" and rank == 0:
            with torch.no_grad():
                seen.append(model(x).clone())
        if event == "accumulate":
            with session.no_sync():
                (model(2 * x) ** 2).mean().backward()
        if event == "infinite" and rank == 1:
            x = x * float("inf")
        if event == "adopt":
            engine_of(session).plans.adopt(plan_of("0.3/all-gather", plan.schedule), number)
        (model(x) ** 2).mean().backward()
        if event == "clip":
            session.synchronize()
            seen.append(nn.utils.clip_grad_norm_(model.parameters(), 0.01).clone())
        session.step()
        scheduler.step()
        if event == "save":
            seen.append(weights(model))
            seen.append(copy.deepcopy(optimizer.state_dict()["state"]))
    session.close()
    seen.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    return seen


EVENTS = {1: "evaluate", 2: "accumulate", 3: "infinite", 4: "save", 5: "clip", 6: "adopt"}


def assert_equal(ours: Any, theirs: Any) -> None:
    if isinstance(ours, Tensor):
        assert torch.equal(ours, theirs)
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_equal(ours[key], theirs[key])
    else:
        assert ours == theirs


@pytest.mark.pattern("attention that reads a projection's weight", works="works, also with deferred gradients")
@pytest.mark.parametrize("schedule", LATE)
@pytest.mark.parametrize("text", ["dense", "0.1/all-gather", "0.1/artopk-star-ring"])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_what_arrives_late_leaves_the_same_bits(rank_pool: RankPool, schedule: str, text: str, optimizer: str) -> None:
    ours, theirs = (
        rank_pool.run_in_process_group(SIZE, train, "layers", text, each, optimizer, EVENTS)
        for each in (schedule, "wait-free")
    )
    for rank in range(SIZE):
        for mine, other in zip(ours[rank], theirs[rank], strict=True):
            assert_equal(mine, other)


def test_whatever_carries_the_vote_the_mean_is_the_same(rank_pool: RankPool) -> None:
    ours, theirs = (
        rank_pool.run_in_process_group(SIZE, train, "layers", "dense", each, "SGD", {})
        for each in ("toy-nothing-awaited", "wait-free")
    )
    assert all(torch.equal(each[-1], ours[0][-1]) for each in ours)
    torch.testing.assert_close(ours[0][-1], theirs[0][-1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", ["attention", "tied", "compiled"])
def test_no_module_runs_with_weights_of_the_step_before(rank_pool: RankPool, model: str) -> None:
    ours, theirs = (
        rank_pool.run_in_process_group(SIZE, train, model, "dense", each, "SGD", {})
        for each in ("toy-last-first", "wait-free")
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine[-1], other[-1])


def stepped_when(rank: int, size: int) -> list[tuple[str, list[bool]]]:
    """Which layers have moved, at each step's end and as each layer of the next forward pass begins."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    session = Session(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        group=Group.connect(),
        plan=replace(plan_of("dense", "toy-last-first"), fusion=FusionPlan((0, 20, 40))),
        recorder=Recorder(None),
    )
    seen: list[tuple[str, list[bool]]] = []
    before: list[Tensor] = []
    now = [layer.weight.detach() for layer in model]  # kept: taken from the model later they would be stepped first

    def look(where: str) -> None:
        seen.append((where, [not torch.equal(a, b) for a, b in zip(now, before, strict=True)]))

    for number in range(2):
        model(torch.ones(2, 4) * (rank + 1)).square().sum().backward()
        if number == 1:
            before = [layer.weight.detach().clone() for layer in model]
        session.step()
    look("step")
    for index, layer in enumerate(model):
        layer.register_forward_pre_hook(lambda *_, index=index: look(f"layer {index}"))
    model(torch.ones(2, 4))
    session.close()
    return seen


def test_a_layer_is_stepped_just_before_it_runs(rank_pool: RankPool) -> None:
    for seen in rank_pool.run_in_process_group(2, stepped_when):
        assert seen == [
            ("step", [True, False, False]),
            ("layer 0", [True, False, False]),
            ("layer 1", [True, True, False]),
            ("layer 2", [True, True, True]),
        ]


def under_way(rank: int, size: int) -> list[tuple[int, int, int]]:
    """How many exchanges are under way after a step, an evaluation, and a forward pass of training."""
    model = layers()
    plan = plan_of("0.1/all-gather", "toy-one-behind")
    session = Session(
        model, torch.optim.SGD(model.parameters(), lr=0.1), group=Group.connect(), plan=plan, recorder=Recorder(None)
    )
    exchanger = engine_of(session).exchanger
    # One transport serves both links: what counts here is when the exchange is sent.
    exchanger._context = replace(exchanger._context, links=(exchanger.group, exchanger.group))
    seen = []
    for number in range(3):
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(100 * number + rank))
        after_step = len(exchanger.pending_exchanges)
        with torch.no_grad():
            model(x)
        after_evaluation = len(exchanger.pending_exchanges)
        loss = (model(x) ** 2).mean()
        seen.append((after_step, after_evaluation, len(exchanger.pending_exchanges)))
        loss.backward()
        session.step()
    session.close()
    return seen


def test_what_waits_is_sent_as_the_forward_pass_begins(rank_pool: RankPool) -> None:
    for seen in rank_pool.run_in_process_group(2, under_way):
        assert seen == [(0, 0, 0), (0, 0, 1), (0, 0, 1)]
