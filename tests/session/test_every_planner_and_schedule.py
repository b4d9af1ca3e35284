"""What scripts do beside one plain pass a step works under each fusion planner and schedule, or is refused.

Ranks train what one process would: everything is sent, so that their weights say whether a gradient was lost. Where
updates are delayed, ranks' weights are alike, and what does not bear it is refused in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from in_process import InProcess, Queues
from torch import Tensor, nn
from trimtab.collectives.group import Group
from trimtab.control.planning import FusionPlanning
from trimtab.control.predict import Predictor
from trimtab.control.types import ModelFacts, OptimizerFamily
from trimtab.plan import Plan
from trimtab.profile import ModuleTimes, Profile
from trimtab.records.recorder import Recorder
from trimtab.session import Session
from trimtab_api.catalogue import planners, schedules
from trimtab_api.errors import UserError

SIZE, STEPS, WIDTH = 2, 6, 6
LEARNING_RATE = 0.05
FUSIONS = tuple(
    f"{row.name}:{option}" if option else row.name
    for row in planners.rows()
    for option in [{"equal": "buffers=3", "cuts": "at=20+50"}.get(row.name, "")]
)
SCHEDULES = tuple(
    f"{name}:preserver=off" if name == "deft" else name for name in schedules.names() if name != "overlap"
)
PLANS = (
    *(f"dense/fusion={fusion}" for fusion in FUSIONS),
    *(f"dense/fusion=equal:buffers=3/schedule={schedule}" for schedule in SCHEDULES),
)


class Model(nn.Module):
    """A shared layer, one that some steps leave out, one that is frozen at times, and one that never learns."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.shared, self.at_times, self.thawing, self.last = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.unused = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor, uses_all: bool) -> Tensor:
        x = torch.tanh(self.shared(self.shared(x)))
        if uses_all:
            x = self.at_times(x)
        out: Tensor = self.last(self.thawing(x))
        return out


def plain(model: Model, x: Tensor, step: int, backward: Callable[[Tensor], Any]) -> None:
    backward(model(x, uses_all=True).square().mean())


def accumulated(model: Model, x: Tensor, step: int, backward: Callable[[Tensor], Any]) -> None:
    session = getattr(model, "session", None)
    half = len(x) // 2
    if session is None:
        plain(model, x[:half], step, backward)
    else:
        with session.no_sync():
            plain(model, x[:half], step, backward)
    plain(model, x[half:], step, backward)


def changing_graph(model: Model, x: Tensor, step: int, backward: Callable[[Tensor], Any]) -> None:
    backward(model(x, uses_all=step % 3 != 1).square().mean())


def frozen_for_a_while(model: Model, x: Tensor, step: int, backward: Callable[[Tensor], Any]) -> None:
    model.thawing.requires_grad_(step >= 3)
    plain(model, x, step, backward)


def clipped(model: Model, x: Tensor, step: int, backward: Callable[[Tensor], Any]) -> None:
    plain(model, x, step, backward)
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)


HABITS = {each.__name__: each for each in (plain, accumulated, changing_graph, frozen_for_a_while, clipped)}


def planned(text: str, model: Model) -> Plan:
    """As rank 0's controller plans it, once steps were profiled: exchanges take as long as computing."""
    sizes = tuple(parameter.numel() for parameter in reversed(list(model.parameters())))
    facts = ModelFacts(sum(sizes), sizes, SIZE, OptimizerFamily("SGD", "sgd"))
    predictor, start, modules = Predictor(facts, 0.1), 0, []
    for number, size in enumerate(sizes):
        modules.append(ModuleTimes(f"m{number}", start, start + size, 0.003, 0.006))
        start += size
    named = Plan.parse(text)
    backward = (0.006,) * len(sizes)
    predictor.observe_profile(Profile(5, 3, named, 0.03, backward, tuple(reversed(modules)), (), None, None, None))
    planning = FusionPlanning(predictor, facts, (1.0,))
    planning.renew(2e-3, 1e-5)
    return planning.plan(1.0, named.collective, named.sparsifier, named.fusion.planner, named.schedule)


def batch(step: int, rank: int) -> Tensor:
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(10 * step + rank))


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def trained_alone(habit: str) -> Tensor:
    """By the mean of both ranks' gradients, in one process."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.5)
    for step in range(STEPS):
        gradients = []
        for rank in range(SIZE):
            optimizer.zero_grad()
            (HABITS[habit] if habit != "clipped" else plain)(model, batch(step, rank), step, Tensor.backward)
            gradients.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
        for parameter, *of_ranks in zip(model.parameters(), *gradients, strict=True):
            parameter.grad = None if of_ranks[0] is None else sum(of_ranks[1:], of_ranks[0]) / SIZE
        if habit == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
    return flat(model)


def trained(rank: int, model: Model, plan: Plan, habit: str, queues: Queues) -> Tensor | str:
    """Weights at the end, or what was said of the refusal."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.5)
    group = Group(InProcess(rank, SIZE, queues))
    session = Session(model, optimizer, group=group, plan=plan, recorder=Recorder(None))
    model.session = session
    try:
        for step in range(STEPS):
            HABITS[habit](model, batch(step, rank), step, Tensor.backward)
            session.step()
    except UserError as error:
        return str(error)
    finally:
        session.close()
    return flat(model)


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("text", PLANS)
def test_habits_work_under_each_planner_and_schedule_or_are_refused(text: str, habit: str) -> None:
    models = [Model() for _ in range(SIZE)]
    plan = planned(text, models[0])
    queues: Queues = {(a, b): SimpleQueue() for a in range(SIZE) for b in range(SIZE)}
    with ThreadPoolExecutor(SIZE) as pool:
        runs = [pool.submit(trained, rank, model, plan, habit, queues) for rank, model in enumerate(models)]
        weights, others = (run.result() for run in runs)
    if isinstance(weights, str):
        assert weights == others
        assert "\n" not in weights
        return
    assert isinstance(others, Tensor)
    assert torch.equal(weights, others)
    if not plan.delays_updates:
        assert torch.allclose(weights, trained_alone(habit), rtol=1e-4, atol=1e-6)
