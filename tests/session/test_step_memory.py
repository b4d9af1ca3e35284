"""A step leaves nothing for Python's cyclic collector: what it made is freed once the next step replaces it.

Activations, gradients and buffers are as large as the model. A cycle of references keeps them until the collector runs.
It counts objects, not bytes, and some scripts switch it off.
"""

from __future__ import annotations

import gc
import os
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import trimtab
from kit.rank_pool import RankPool
from kit.training import toy_schedules
from kit.training.engines import engine_of
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.papers.bytescheduler import priority
from trimtab.papers.deft import queues
from trimtab.papers.us_byte import us_byte
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.catalogue import DENSE_COLLECTIVES, SPARSE_COLLECTIVES, sparsifiers

SIZE, WIDTH = 2, 6
PERIOD = 12
"""Steps: whole rounds of local steps, and whole cycles of schedules."""
THREE_BUFFERS = FusionPlan((0, 50, 100))
TIMES = StepTimes((0.1,) * 3, (0.2,) * 3, (0.0,) * 3, (0.5,) * 3)
TIMETABLES = {
    "priority": partial(priority.timetable, num_links=1),
    "us-byte": us_byte.timetable,
    "deft": queues.timetable,
}
#: Of toy schedules, those over one link.
TOYS = [toy.name for toy in toy_schedules.TOYS if toy.name != "toy-one-behind"]
PLANS = {
    "dense": list(DENSE_COLLECTIVES),
    "sparse": [f"0.25/{name}" for name in SPARSE_COLLECTIVES],
    "sparsifiers": [f"0.25/all-gather/sparsifier={name}" for name in sparsifiers.built_in if name != "hard-threshold"],
    "momentum and clipping": [
        "0.25/all-gather/source=gradient:momentum=0.9",
        "0.25/all-gather/schedule=after-backward/source=gradient:clip=1",
    ],
    "dense schedules": [f"dense/schedule={name}" for name in ("after-backward", *TIMETABLES, *TOYS)],
    "sparse schedules": [f"0.25/all-gather/schedule={name}" for name in ("after-backward", *TIMETABLES)],
    "local steps": [
        *(f"{head}/source=update:steps=3" for head in ("dense", "0.25/all-gather")),
        "dense/source=update:outerMomentum=0.9:outerRate=0.7:steps=3",
        *(f"{head}/schedule=overlap/source=update:steps=3" for head in ("dense", "0.25/all-gather")),
    ],
}


def plan_of(text: str) -> Plan:
    toy_schedules.register()
    plan = replace(Plan.parse(text), fusion=THREE_BUFFERS)
    made = TIMETABLES.get(plan.schedule.partition(":")[0])
    return plan if made is None else replace(plan, timetable=made(TIMES))


class Network(nn.Module):
    """Remembers, weakly, what it computed."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(5))
        self.activations: list[weakref.ref[Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
            self.activations.append(weakref.ref(x))
        return x


class Garbage:
    """What steps leave behind, seen with the collector off."""

    def __init__(self, model: Network) -> None:
        self._model = model
        gc.collect()
        gc.disable()
        gc.freeze()  # leaves out what there is, such as torch
        self._sizes: list[int] = []

    def look(self) -> list[str]:
        """What is wrong after more steps: activations that live, and more bytes in tensors than at the first look.

        Messages are as large as what was selected, and gradients may be on their way: four models more are no growth. A
        leak of one tensor a step is twelve.
        """
        alive = sum(each() is not None for each in self._model.activations)
        wrong = [f"{alive} of {len(self._model.activations)} activations are alive"] if alive else []
        self._model.activations.clear()
        tensors = (each for each in gc.get_objects() if issubclass(type(each), Tensor))
        storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}
        self._sizes.append(sum(storages.values()))
        allowed = self._sizes[0] + 4 * sum(parameter.nbytes for parameter in self._model.parameters())
        return wrong if self._sizes[-1] <= allowed else [*wrong, f"bytes in tensors: {self._sizes}"]

    def end(self) -> list[str]:
        """What is wrong with all steps: cycles, which only the collector can free."""
        try:
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            kinds = Counter(type(each).__qualname__ for each in gc.garbage)
            return [f"cycles of {kinds.most_common(8)}"] if kinds else []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.unfreeze()
            gc.enable()


Step = Callable[[Network, Session, torch.optim.Optimizer, GradScaler, Tensor], None]


def session_step(model: Network, session: Session, optimizer: torch.optim.Optimizer, _: GradScaler, x: Tensor) -> None:
    loss = model(x).square().mean()
    loss.backward()
    session.step(loss)


def own_step(model: Network, session: Session, optimizer: torch.optim.Optimizer, _: GradScaler, x: Tensor) -> None:
    with session.no_sync():
        model(x).square().mean().backward()
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def clipped_step(model: Network, session: Session, optimizer: torch.optim.Optimizer, _: GradScaler, x: Tensor) -> None:
    model(x).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()
    optimizer.zero_grad()


def closure_step(model: Network, session: Session, optimizer: torch.optim.Optimizer, _: GradScaler, x: Tensor) -> None:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


def scaled_step(
    model: Network, session: Session, optimizer: torch.optim.Optimizer, scaler: GradScaler, x: Tensor
) -> None:
    scaler.scale(model(x).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def dropped_step(model: Network, session: Session, optimizer: torch.optim.Optimizer, _: GradScaler, x: Tensor) -> None:
    (model(x).square().mean() * (float("nan") if session.steps % 2 and session.rank else 1.0)).backward()
    session.step()


def skipped_step(model: Network, session: Session, optimizer: torch.optim.Optimizer, _: GradScaler, x: Tensor) -> None:
    model(x).square().mean().backward()
    session.skip()
    session_step(model, session, optimizer, _, x)


STEPPERS: dict[str, Step] = {
    step.__name__: step
    for step in (session_step, own_step, clipped_step, closure_step, scaled_step, dropped_step, skipped_step)
}


def train(group: Group, texts: list[str], style: str, more_steps: int = PERIOD) -> dict[str, list[str]]:
    """What was wrong under each plan."""
    return {text: wrong for text in texts if (wrong := train_by(group, plan_of(text), style, more_steps))}


def train_by(group: Group, plan: Plan, style: str, more_steps: int) -> list[str]:
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.0 if "momentum=0.9" in plan.name else 0.9)
    scaler = GradScaler("cpu", init_scale=16.0, enabled=style == "scaled_step")
    session = Session(
        model,
        optimizer,
        group=group,
        plan=plan,
        recorder=Recorder(None),
        options=SessionOptions(scale=LossScale(scaler)),
    )
    step, x = STEPPERS[style], torch.randn(4, WIDTH)

    def take(num_steps: int) -> None:
        for _ in range(num_steps):
            step(model, session, optimizer, scaler, x)

    try:
        take(PERIOD)
        garbage, wrong = Garbage(model), []
        for num_steps in (PERIOD, more_steps):
            take(num_steps)
            wrong += garbage.look()
        return wrong + garbage.end()
    finally:
        gc.enable()
        engine_of(session).close()  # and not the group, which is the pool's


@pytest.mark.parametrize("texts", PLANS.values(), ids=PLANS)
def test_no_step_under_a_plan_leaves_a_cycle(rank_pool: RankPool, texts: list[str]) -> None:
    assert rank_pool.run(SIZE, train, texts, "session_step") == [{}] * SIZE


@pytest.mark.parametrize("style", [name for name in STEPPERS if name != "session_step"])
def test_no_habit_of_a_script_leaves_a_cycle(rank_pool: RankPool, style: str) -> None:
    texts = ["dense", "0.25/all-gather", "dense/schedule=priority", "0.25/all-gather/schedule=us-byte"]
    assert rank_pool.run(SIZE, train, texts, style) == [{}] * SIZE


def test_memory_after_200_steps_is_that_after_24(rank_pool: RankPool) -> None:
    texts = ["0.25/all-gather/schedule=priority", "0.25/all-gather/schedule=overlap/source=update:steps=3"]
    assert rank_pool.run(SIZE, train, texts, "session_step", 15 * PERIOD) == [{}] * SIZE


def wrapped(rank: int, size: int, folder: Path, kind: str) -> list[str]:
    """What was wrong with a script for DDP, of a kind, which keeps its loop."""
    os.chdir(folder)
    model = Network()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = GradScaler("cpu", init_scale=16.0, enabled="scaler" in kind)
    state = trimtab.HookState(optimizer, scaler=scaler, plan="0.25/all-gather", run_directory="run")
    session: Any = None
    if "hook" in kind:
        ddp.register_comm_hook(state, trimtab.hook)
    else:
        session = trimtab.attach(ddp, optimizer, scaler=scaler, plan="0.25/all-gather", run_directory="run")

    def take(num_steps: int) -> None:
        for _ in range(num_steps):
            with ddp.no_sync() if "no_sync" in kind else nullcontext():
                scaler.scale(ddp(torch.ones(4, WIDTH)).square().mean()).backward()
            if "no_sync" in kind:
                scaler.scale(ddp(torch.ones(4, WIDTH)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    take(PERIOD)
    garbage, wrong = Garbage(model), []
    for _ in range(2):
        take(PERIOD)
        wrong += garbage.look()
    wrong += garbage.end()
    (session or state).close()
    return wrong


@pytest.mark.parametrize("kind", ["wrapper", "wrapper, no_sync, scaler", "hook", "hook, no_sync, scaler"])
def test_no_step_of_a_wrapped_model_leaves_a_cycle(rank_pool: RankPool, kind: str, tmp_path: Path) -> None:
    assert rank_pool.run_in_process_group(SIZE, wrapped, tmp_path, kind) == [[]] * SIZE
