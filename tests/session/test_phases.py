"""Where the time of a step goes, by a clock that stands still but where a test moves it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training import slow_exchanges, toy_schedules
from kit.training.engines import engine_of
from torch import Tensor, nn
from trimtab.engine.optimizer import partial_steps as stepped_in_parts
from trimtab.engine.phase_timer import PHASES, PhaseTimer
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

SIZE = 2
#: Seconds of each part of one step, and of waiting for one exchange.
FORWARD, BACKWARD, BETWEEN, OPTIMIZER, WAIT = 1, 20, 300, 4000, 50_000
#: A buffer for each of the two layers, the last one's first.
TWO_BUFFERS = FusionPlan((0, 5))


class Clock:
    """Shows seconds that others let pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Training(nn.Module):
    """Each part of a step takes the time that it is given above."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        self.clock.now += FORWARD
        hidden = self.first(inputs)
        hidden.register_hook(lambda _: self.passes(BACKWARD))  # after the last layer's gradient, before the first's
        return self.last(hidden)

    def passes(self, seconds: float) -> None:
        self.clock.now += seconds


class Slow(torch.optim.SGD):
    def __init__(self, model: Training) -> None:
        super().__init__(model.parameters(), lr=0.1)
        self.clock = model.clock

    @torch.no_grad()
    def step(self) -> None:
        self.clock.now += OPTIMIZER
        super().step()


def train(rank: int, size: int, folder: Path, plan: str, by: str) -> None:
    clock = Clock()
    torch.manual_seed(0)
    model = Training(clock)
    optimizer, parsed = Slow(model), Plan.parse(plan)
    recorder = Recorder(None if rank else folder)
    session = Session(model, optimizer, group=Group.connect(), plan=parsed, recorder=recorder)
    phases = engine_of(session).phases
    phases.clock = clock
    phases.lap()
    for _ in range(4):
        if by == "accumulation":
            with session.no_sync():
                model(torch.ones(2, 4)).sum().backward()
        model(torch.ones(2, 4)).sum().backward()
        clock.now += BETWEEN
        if by == "optimizer.step":
            optimizer.step()
            optimizer.zero_grad()
        else:
            session.step()
    session.close()


@pytest.mark.parametrize(
    ("plan", "by", "num_passes"),
    [
        ("dense", "session.step", 1),
        ("0.5/all-gather", "optimizer.step", 1),
        ("0.5/all-gather", "accumulation", 2),
        ("0.5/all-gather/schedule=priority", "session.step", 1),
    ],
)
def test_each_part_of_a_step_counts_for_its_phase(
    rank_pool: RankPool, tmp_path: Path, plan: str, by: str, num_passes: int
) -> None:
    rank_pool.run_in_process_group(SIZE, train, tmp_path, plan, by)
    written = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in written if "step_seconds" in line]
    phases = [(line["forward_seconds"], line["backward_seconds"], line["optimizer_seconds"]) for line in lines]
    assert phases == [(num_passes * FORWARD, num_passes * BACKWARD, OPTIMIZER)] * 4
    ratios = {line["achieved_ratio"] for line in lines}
    assert ratios == {1.0} if plan == "dense" else all(0.4 < ratio < 0.6 for ratio in ratios)
    assert all((line["residual_norm"] > 0) == (plan != "dense") for line in lines)


def test_local_steps_are_told_apart_from_the_exchange_that_ends_their_round(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    rank_pool.run_in_process_group(SIZE, train, tmp_path, "dense/source=update:steps=2", "session.step")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["backward_seconds"] for line in lines] == [BACKWARD] * 4
    assert [line["optimizer_seconds"] for line in lines] == [OPTIMIZER] * 4
    assert [line["achieved_ratio"] for line in lines] == [None, 1.0, None, 1.0]


def train_with_slow_exchanges(rank: int, size: int, folder: Path, schedule: str) -> list[tuple[float, float]]:
    """What this rank says its steps took, and what of it was computing."""
    toy_schedules.register()
    clock = Clock()
    torch.manual_seed(0)
    model = Training(clock)
    plan = replace(Plan.parse("dense", TWO_BUFFERS), schedule=schedule)
    recorder = Recorder(None if rank else folder)
    stepped_in_parts._BY_PARAMETER += (Slow,)
    session = Session(model, Slow(model), group=Group.connect(), plan=plan, recorder=recorder)
    phases = engine_of(session).phases
    phases.clock = clock
    phases.lap()
    taken = []
    with slow_exchanges.each_takes(lambda: model.passes(WAIT)):
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            session.step()
            report = session._training.follow_up._rounds._ended
            assert report is not None
            taken.append((report.step_seconds, report.compute_seconds))
        session.close()
    return taken


@pytest.mark.parametrize(
    ("schedule", "num_waits", "num_optimizer_steps"),
    # The second buffer of the last two arrives in the next step's forward pass, where its parameters are stepped.
    [("wait-free", (2, 2, 2), (1, 1, 1)), ("toy-last-first", (1, 2, 2), (1, 2, 2))],
)
def test_what_is_waited_for_is_no_computing_of_any_rank_wherever_in_the_step_it_is(
    rank_pool: RankPool, tmp_path: Path, schedule: str, num_waits: tuple[int, ...], num_optimizer_steps: tuple[int, ...]
) -> None:
    taken = rank_pool.run_in_process_group(SIZE, train_with_slow_exchanges, tmp_path, schedule)
    computing = [FORWARD + BACKWARD + count * OPTIMIZER for count in num_optimizer_steps]
    steps = [seconds + count * WAIT for seconds, count in zip(computing, num_waits, strict=True)]
    assert taken == [list(zip(steps, computing, strict=True))] * SIZE
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step_seconds"], line["compute_seconds"]) for line in lines] == taken[0]
    assert [line["forward_seconds"] for line in lines] == [FORWARD] * 3


def test_phases_make_up_the_step_and_backward_begins_before_its_first_gradient() -> None:
    clock = Clock()
    phases = PhaseTimer(clock)
    phases._first_gradient_seconds = 3.0
    for phase, seconds in (("backward", 10.0), ("exposed", 5.0), ("other", 0.5), ("optimizer", 2.0), ("other", 1.0)):
        clock.now += seconds
        phases.enter(phase)
    clock.now += 0.25
    seconds = phases.lap()
    assert list(seconds) == list(PHASES)
    assert seconds == {"forward": 7.0, "backward": 8.0, "exposed": 0.5, "optimizer": 1.0, "other": 2.25}
    assert sum(seconds.values()) == clock.now
    assert sum(phases.lap().values()) == 0, "a new step"
