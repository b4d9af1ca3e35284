"""What scripts do beside one plain pass a step works under each fusion planner and schedule.

Where everything is sent, ranks train what one process would: their weights say whether a gradient was lost. Where
updates are delayed, or a part is sent, ranks' weights are alike, and what ranks computed is what their optimizers got
and what is held back.

Every plan trains the plain script, and every habit is tried once where updates are late, and where they are delayed.
That plans and habits do not meddle with each other in any other pair is a property, of which few examples are tried:
`make test-all` tries many.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.in_process import InProcess, Queues
from kit.training.engines import engine_of
from kit.training.held_back import total_of
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch._dynamo.backends.registry import lookup_backend
from torch.fx import GraphModule
from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.planning import FusionPlanning
from trimtab.control.types import ModelFacts, OptimizerFamily
from trimtab.engine.gradients.uncompiled_hook import ModuleHook
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.plan.plan import Plan
from trimtab.plan.profile import ModuleTimes, Profile
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.catalogue import planners, schedules

SIZE, STEPS, WIDTH = 2, 6, 6
LEARNING_RATE, CLIPPED_NORM = 0.05, 0.05
OVERFLOWING = 2
"""The step that overflows on rank 0, where one does."""
FUSIONS = tuple(
    f"{row.name}:{option}" if option else row.name
    for row in planners.rows()
    for option in [{"equal": "buffers=3", "cuts": "at=20+50"}.get(row.name, "")]
)
#: Updates are sums here, whose balance is easier to keep.
SCHEDULES = tuple(
    f"{name}:merged=sum:preserver=off" if name == "deft" else name for name in schedules.names() if name != "overlap"
)
DENSE = (
    *(f"dense/fusion={fusion}" for fusion in FUSIONS),
    *(f"dense/fusion=equal:buffers=3/schedule={schedule}" for schedule in SCHEDULES),
)
SPARSE = (
    *(f"0.25/all-gather/fusion={fusion}" for fusion in FUSIONS),
    *(
        f"0.25/{collective}/fusion=equal:buffers=3/schedule={schedule}"
        for collective in ("all-gather", "artopk-star-ring")
        for schedule in SCHEDULES
    ),
)
#: A plan whose updates are late, into the next forward pass, and those whose updates wait for another iteration.
LATE = "dense/fusion=equal:buffers=3/schedule=priority"
DELAYED = [text for text in SPARSE if "deft" in text]


class Model(nn.Module):
    """A shared layer, one that some steps leave out, one that is frozen at times, and one that never learns."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.shared, self.at_times, self.thawing, self.last = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.unused = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor, uses_all: bool = True) -> Tensor:
        x = torch.tanh(self.shared(self.shared(x)))
        if uses_all:
            x = self.at_times(x)
        out: Tensor = self.last(self.thawing(x))
        return out


@dataclass
class Training:
    """One rank's, or that of one process, which has no session."""

    model: Model
    called: nn.Module
    """The model, as the script calls it."""
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    session: Session | None = None


def plain(of: Training, x: Tensor, step: int) -> None:
    of.called(x).float().square().mean().backward()


def accumulated(of: Training, x: Tensor, step: int) -> None:
    half = len(x) // 2
    if of.session is None:
        plain(of, x[:half], step)
    else:
        with of.session.no_sync():
            plain(of, x[:half], step)
    plain(of, x[half:], step)


def changing_graph(of: Training, x: Tensor, step: int) -> None:
    of.called(x, uses_all=step % 3 != 1).square().mean().backward()


def frozen_for_a_while(of: Training, x: Tensor, step: int) -> None:
    of.model.thawing.requires_grad_(step >= 3)
    plain(of, x, step)


def clipped(of: Training, x: Tensor, step: int) -> None:
    plain(of, x, step)
    if of.session is not None:
        of.session.synchronize()
        nn.utils.clip_grad_norm_(of.model.parameters(), CLIPPED_NORM)


def autocast(of: Training, x: Tensor, step: int) -> None:
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):  # threads empty each other's cache
        out = of.called(x)
    out.float().square().mean().backward()


def scaled(of: Training, x: Tensor, step: int, overflows: bool = False) -> None:
    with torch.autocast("cpu", torch.float16, cache_enabled=False):
        out = of.called(x)
    loss = out.float().square().mean()
    of.scaler.scale(loss * float("inf") if overflows else loss).backward()


def overflowing(of: Training, x: Tensor, step: int) -> None:
    is_there = of.session is not None and of.session.rank == 0
    scaled(of, x, step, overflows=step == OVERFLOWING and is_there)


def scaled_and_clipped(of: Training, x: Tensor, step: int) -> None:
    scaled(of, x, step)
    if of.session is not None:
        of.scaler.unscale_(of.optimizer)
        nn.utils.clip_grad_norm_(of.model.parameters(), CLIPPED_NORM)


def scaled_in_own_steps(of: Training, x: Tensor, step: int) -> None:
    scaled(of, x, step)
    if of.session is not None:
        of.scaler.step(of.optimizer)
        of.scaler.update()
        of.optimizer.zero_grad()


def compiled(of: Training, x: Tensor, step: int) -> None:
    plain(of, x, step)


def compiled_in_place(of: Training, x: Tensor, step: int) -> None:
    plain(of, x, step)


def compiled_before_attach(of: Training, x: Tensor, step: int) -> None:
    plain(of, x, step)


def counted(graph: GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    """A backend that counts how often what it has compiled is run."""
    run = lookup_backend("aot_eager")(graph, inputs)

    def call(*args: Any) -> Any:
        compiled_runs.append(graph)
        return run(*args)

    return call


compiled_runs: list[GraphModule] = []
HABITS = {
    each.__name__: each
    for each in (
        plain,
        accumulated,
        changing_graph,
        frozen_for_a_while,
        clipped,
        autocast,
        scaled,
        overflowing,
        scaled_and_clipped,
        scaled_in_own_steps,
        compiled,
        compiled_in_place,
        compiled_before_attach,
    )
}
OTHER_HABITS = [each for each in HABITS if each != "plain"]
SCALED = {"scaled", "overflowing", "scaled_and_clipped", "scaled_in_own_steps"}
OWN_STEPS = {"scaled_in_own_steps"}
COMPILED = {"compiled", "compiled_in_place", "compiled_before_attach"}
CLIPPED = {"clipped", "scaled_and_clipped"}


def training_of(habit: str, momentum: float) -> Training:
    model = Model()
    called = torch.compile(model, backend=counted) if habit in ("compiled", "compiled_before_attach") else model
    if habit == "compiled_in_place":
        model.compile(backend=counted)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=momentum)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=habit in SCALED)
    return Training(model, called, optimizer, scaler)


@cache
def planned(text: str) -> Plan:
    """As rank 0's controller plans it, once steps were profiled; under a schedule, exchanges outlast computing."""
    sizes = tuple(parameter.numel() for parameter in reversed(list(Model().parameters())))
    facts = ModelFacts(sum(sizes), sizes, SIZE, OptimizerFamily("SGD", "sgd"), shares_interface=True)
    named = Plan.parse(text)
    predictor, start, modules = Predictor(facts, 0.1), 0, []
    for number, size in enumerate(sizes):
        modules.append(ModuleTimes(f"m{number}", start, start + size, 0.003, 0.006))
        start += size
    backward = (0.006,) * len(sizes)
    predictor.observe_profile(Profile(5, 3, named, 0.03, backward, tuple(reversed(modules)), (), None, None, None))
    planning = FusionPlanning(predictor, facts, (named.ratio,))
    latency = 2e-3 if named.schedule == schedules.default else 2e-2 if named.is_dense else 4e-2
    planning.renew(latency, 1e-5)
    return planning.plan(named.ratio, named.collective, named.sparsifier, named.fusion.planner, named.schedule)


def batch(step: int, rank: int) -> Tensor:
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(10 * step + rank))


@cache
def trained_alone(habit: str) -> Tensor:
    """By the mean of both ranks' gradients, in one process."""
    of = training_of(habit, momentum=0.5)
    for step in range(STEPS):
        gradients = []
        for rank in range(SIZE):
            of.optimizer.zero_grad()
            HABITS[habit](of, batch(step, rank), step)
            gradients.append([None if p.grad is None else p.grad.clone() for p in of.model.parameters()])
        for parameter, *of_ranks in zip(of.model.parameters(), *gradients, strict=True):
            parameter.grad = None if of_ranks[0] is None else sum(of_ranks[1:], of_ranks[0]) / SIZE
        of.scaler.unscale_(of.optimizer) if habit in SCALED else None
        if habit in CLIPPED:
            nn.utils.clip_grad_norm_(of.model.parameters(), CLIPPED_NORM)
        if not (habit == "overflowing" and step == OVERFLOWING):
            of.scaler.step(of.optimizer)
        of.scaler.update()
    return weights_of(of.model)


@dataclass
class Trained:
    """One rank's run."""

    weights: Tensor
    scale: float
    entered: Tensor
    """What backward passes made; float64 [n], in the order of the parameters."""
    handed: Tensor
    """What the optimizer got."""
    held_back: Tensor
    """What waits, has arrived or is a residual."""


class Balance:
    """What goes into a rank's exchanges and comes out of them, by parameter."""

    def __init__(self, of: Training) -> None:
        self._parameters, self._scaler = list(of.model.parameters()), of.scaler
        self.entered = [torch.zeros(p.shape, dtype=torch.float64) for p in self._parameters]
        self.handed = [torch.zeros_like(each) for each in self.entered]
        for parameter, entered in zip(self._parameters, self.entered, strict=True):
            parameter.register_hook(partial(self._on_gradient, entered))
        of.optimizer.register_step_pre_hook(
            ModuleHook(self._on_step)
        )  # as the session's: for one of the script's all waits

    def _on_gradient(self, entered: Tensor, grad: Tensor) -> None:
        entered += grad / self._scaler.get_scale()

    def _on_step(self, *_: Any) -> None:
        for parameter, handed in zip(self._parameters, self.handed, strict=True):
            if parameter.grad is not None:
                handed += parameter.grad

    def held_back(self, session: Session) -> Tensor:
        engine_of(session).settle()
        held = total_of(session, "residual", "waiting", "arrived").split([p.numel() for p in self._parameters[::-1]])
        return torch.cat(held[::-1])


def trained(rank: int, of: Training, plan: Plan, habit: str, queues: list[Queues]) -> Trained:
    balance = Balance(of)
    links = (Group(InProcess(rank, SIZE, each)) for each in queues)
    group, scale = next(links), LossScale(of.scaler)
    group.offer_extra_links(partial(next, links))
    attached = of.called if habit == "compiled_before_attach" else of.model
    of.session = Session(
        attached, of.optimizer, group=group, plan=plan, recorder=Recorder(None), options=SessionOptions(scale=scale)
    )
    try:
        for step in range(STEPS):
            HABITS[habit](of, batch(step, rank), step)
            if habit not in OWN_STEPS:
                of.session.step()
        held_back = balance.held_back(of.session)
    finally:
        of.session.close()
    entered, handed = (torch.cat([e.flatten() for e in each]) for each in (balance.entered, balance.handed))
    return Trained(weights_of(of.model), of.scaler.get_scale(), entered, handed, held_back)


def of_ranks(text: str, habit: str, momentum: float) -> list[Trained]:
    plan = planned(text)
    trainings = [training_of(habit, momentum) for _ in range(SIZE)]
    ways = [(a, b) for a in range(SIZE) for b in range(SIZE)]
    queues: list[Queues] = [{way: SimpleQueue() for way in ways} for _ in range(plan.num_links)]
    compiled_runs.clear()
    with ThreadPoolExecutor(SIZE) as pool:
        runs = [pool.submit(trained, rank, of, plan, habit, queues) for rank, of in enumerate(trainings)]
        first, *others = (run.result() for run in runs)
    for other in others:
        assert torch.equal(first.weights, other.weights)
        assert first.scale == other.scale
    assert torch.isfinite(first.weights).all()
    if habit == "overflowing":  # whose buckets may be dropped in several iterations
        assert first.scale in ((512, 256) if plan.delays_updates else (512,))
    if habit in COMPILED:
        assert len(compiled_runs) >= SIZE * STEPS
    return [first, *others]


def check_weights(text: str, habit: str) -> None:
    first, _ = of_ranks(text, habit, momentum=0.5)
    if not planned(text).delays_updates:
        assert torch.allclose(first.weights, trained_alone(habit), rtol=1e-4, atol=1e-6)


def check_balance(text: str, habit: str) -> None:
    ranks = of_ranks(text, habit, momentum=0.0)
    if habit in CLIPPED or habit == "overflowing":
        return
    entered, handed, held_back = (
        torch.stack([getattr(rank, name) for rank in ranks]).sum(0) for name in ("entered", "handed", "held_back")
    )
    assert entered.abs().max() > 0
    assert torch.allclose(handed + held_back, entered, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("text", "habit"), [*product(DENSE, ["plain"]), *product([LATE], OTHER_HABITS)])
def test_ranks_that_send_everything_train_what_one_process_would(text: str, habit: str) -> None:
    check_weights(text, habit)


@pytest.mark.pattern(
    "these patterns under each fusion planner and schedule",
    works="works",
)
@pytest.mark.parametrize(
    ("text", "habit"), [*product(SPARSE, ["plain"]), *product(DELAYED, sorted({*OTHER_HABITS} - COMPILED))]
)
def test_ranks_that_send_a_part_lose_nothing(text: str, habit: str) -> None:
    check_balance(text, habit)


def check(text: str, habit: str) -> None:
    (check_weights if text in DENSE else check_balance)(text, habit)


@settings(max_examples=examples(15), deadline=None)
@given(text=st.sampled_from([*DENSE, *SPARSE]), habit=st.sampled_from(sorted({*OTHER_HABITS} - COMPILED)))
def test_any_habit_loses_nothing_under_any_plan(text: str, habit: str) -> None:
    check(text, habit)


@pytest.mark.full
@pytest.mark.parametrize("habit", OTHER_HABITS)
@pytest.mark.parametrize("text", [*DENSE, *SPARSE])
def test_every_habit_loses_nothing_under_every_plan(text: str, habit: str) -> None:
    check(text, habit)


def clipped_at_once(of: Training, x: Tensor, step: int) -> None:
    plain(of, x, step)
    nn.utils.clip_grad_norm_(of.model.parameters(), CLIPPED_NORM)


@pytest.mark.parametrize("schedule", ["priority", "us-byte"])
def test_clipping_waits_for_gradients_that_are_late(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HABITS, "clipped_at_once", clipped_at_once)
    at_once, after_all = (
        of_ranks(f"dense/fusion=equal:buffers=3/schedule={schedule}", habit, momentum=0.5)[0]
        for habit in ("clipped_at_once", "clipped")
    )
    assert torch.equal(at_once.weights, after_all.weights)
