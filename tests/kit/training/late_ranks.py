"""Two ranks, as threads, that train one script under a schedule whose means arrive late, and as wait-free does."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

import torch
from kit.in_process import InProcess, Queues
from kit.training import toy_schedules
from kit.training.weights import weights_of
from torch import Tensor, nn
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

SIZE, STEPS, WIDTH = 2, 5, 16
#: The first awaits the bucket of the first layers, the second that of the last ones; all others are late.
LATE = ("toy-last-first", "toy-only-last-awaited")


@dataclass
class Script:
    """What one rank's script has at hand."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    session: Session
    kept: dict[str, Any] = field(default_factory=dict)
    """Of the script's own, from step to step."""
    seen: list[Tensor] = field(default_factory=list)
    """What it has looked at: as under wait-free."""
    num_late: int = 0
    """Steps after which some parameters had not been stepped."""

    def look(self) -> None:
        """Count the step where some of it is late, without waiting for it."""
        self.num_late += bool(self.session.debug_state().late)


def by_name(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Functions as parameters of a test, which their names tell apart."""
    return {each.__name__: each for each in functions}


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def batch(step: int, rank: int) -> Tensor:
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(10 * step + rank))


def plain(of: Script, x: Tensor, step: int) -> None:
    of.model(x).square().mean().backward()
    of.session.step()


def plan_of(model: nn.Module, schedule: str, text: str = "dense", buffers: int = 3) -> Plan:
    """Buffers of about one size, whose cuts lie within tensors."""
    toy_schedules.register()
    size = sum(parameter.numel() for parameter in model.parameters())
    cuts = FusionPlan(tuple(size * number // buffers for number in range(buffers)))
    return replace(Plan.parse(text, cuts), schedule=schedule)


def trained(
    schedule: str,
    step: Callable[[Script, Tensor, int], None] = plain,
    make_model: Callable[[], nn.Module] = layers,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd,
    text: str = "dense",
) -> tuple[Script, list[Tensor]]:
    """Rank 0's script, and all that it has looked at, with its weights at the end; the other rank's are the same."""
    queues: Queues = {(a, b): SimpleQueue() for a in range(SIZE) for b in range(SIZE)}
    models = [make_model() for _ in range(SIZE)]

    def run(rank: int) -> Script:
        model = models[rank]
        optimizer, group = make_optimizer(model), Group(InProcess(rank, SIZE, queues))
        plan = plan_of(model, schedule, text)
        of = Script(model, optimizer, Session(model, optimizer, group=group, plan=plan, recorder=Recorder(None)))
        try:
            for number in range(STEPS):
                step(of, batch(number, rank), number)
                of.look()
        finally:
            of.session.close()
        return of

    with ThreadPoolExecutor(SIZE) as pool:
        first, second = (each.result() for each in [pool.submit(run, rank) for rank in range(SIZE)])
    assert torch.equal(weights_of(first.model), weights_of(second.model))
    return first, [*first.seen, weights_of(first.model)]


def assert_as_wait_free(schedule: str, *args: Any, **kwargs: Any) -> Script:
    """The same bits, of all that a script looks at, as where it waits for all; the script as it ended."""
    (of, ours), (_, theirs) = trained(schedule, *args, **kwargs), trained("wait-free", *args, **kwargs)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)
    return of
