"""What scripts do with a model under DDP: the same bits by each way to attach under dense, equal ranks when compressed.

This is where equality with DDP is proven, of each pattern once; other files prove it of what they alone have.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import trimtab
from kit.rank_pool import RankPool
from kit.training.regression import loss_of, model_of
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from trimtab.engine.optimizer.loss_scale import LossScale

SIZE = 2
STEPS = 5
#: Instead of DDP's wrapper, inside of it, or as its communication hook.
WAYS = ("attach", "wrap", "hook")
#: DDP's buckets [MB]: several of these small models, once DDP cuts them anew after the first step.
BUCKET_CAP = 1e-4


def make_sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.05, momentum=0.9)


@dataclass(frozen=True)
class Pattern:
    """Where a script differs from the plainest; ``module`` is what it calls, which DDP wraps."""

    model: Callable[[], nn.Module] = model_of
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = make_sgd
    loss: Callable[[nn.Module, int, int], Tensor] = loss_of
    call: Callable[[nn.Module], nn.Module] = lambda module: module
    """Made of the module, or of its DDP."""
    before_step: Callable[[nn.Module], Any] = lambda model: None
    after_step: Callable[[nn.Module, int], Any] = lambda model, number: None
    accumulates: bool = False
    """A backward pass without an exchange comes before each."""
    scales: bool = False
    ddp: tuple[tuple[str, Any], ...] = ()
    ways: tuple[str, ...] = WAYS


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.out = nn.Linear(4, 4), nn.Linear(4, 4)
        self.out.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.embed(x))).sum(dim=1, keepdim=True)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cells, self.out = nn.LSTM(1, 8, num_layers=2, batch_first=True), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cells(x.unsqueeze(-1))[0][:, -1])


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = model_of()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.inner:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


class PartlyUsed(nn.Module):
    """A branch that only every second call takes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.branch, self.calls = model_of(), nn.Linear(4, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.inner(self.branch(x) if self.calls % 2 else x)


class Convolutional(nn.Module):
    """Its weights and their gradients lie in memory channels last."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(2, 6, 2, padding=1)
        self.out = nn.Linear(6, 1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        image = x.view(-1, 2, 2, 1).contiguous(memory_format=torch.channels_last)
        return self.out(torch.tanh(self.convolution(image)).mean(dim=(2, 3)))


def clip(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


class Descending(torch.optim.SGD):
    """Steps by its parent's step. Once an SGD of torch's own was made, torch calls hooks around both."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def frozen() -> nn.Module:
    model = model_of()
    model[2].requires_grad_(False)
    return model


def parametrized() -> nn.Module:
    model = model_of()
    torch.nn.utils.parametrizations.weight_norm(model[0])
    return model


def in_autocast(module: nn.Module, number: int, rank: int) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return loss_of(module, number, rank)


def of_two_batches(module: nn.Module, number: int, rank: int) -> Tensor:
    """Two forward passes, one backward pass."""
    return loss_of(module, number, rank) + 0.5 * loss_of(module, number + 70, rank)


def evaluating(model: nn.Module, number: int) -> None:
    model.eval()
    with torch.no_grad():
        loss_of(model, 99, 0)
    model.train()


def one_cycle(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = make_sgd(model)
    optimizer.cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS + 1)
    optimizer.register_step_post_hook(lambda *_: optimizer.cycle.step())
    return optimizer


def weighted_average(model: nn.Module) -> torch.optim.Optimizer:
    """Weights are replaced by an average of theirs now and then."""
    optimizer = make_sgd(model)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer.register_step_post_hook(lambda *_: average.update_parameters(model))
    return optimizer


PATTERNS = {
    "plain": Pattern(),
    "tied weights": Pattern(model=Tied),
    "recurrent": Pattern(model=Recurrent),
    "checkpointed": Pattern(model=Checkpointed),
    "frozen layers": Pattern(model=frozen),
    "unused parameters": Pattern(model=PartlyUsed, ddp=(("find_unused_parameters", True),)),
    "channels last": Pattern(model=Convolutional),
    "parametrizations": Pattern(model=parametrized),
    "autocast": Pattern(loss=in_autocast),
    "compiled": Pattern(
        call=lambda module: torch.compile(module, backend="aot_eager"), ddp=(("bucket_cap_mb", 25),), ways=("attach",)
    ),
    "several forward passes": Pattern(loss=of_two_batches),
    "clipped by value": Pattern(before_step=lambda model: nn.utils.clip_grad_value_(model.parameters(), 0.05)),
    "gradients changed": Pattern(before_step=lambda model: [p.grad.mul_(0.5) for p in model.parameters()]),
    "evaluation between": Pattern(after_step=evaluating),
    "scheduled every step": Pattern(optimizer=one_cycle),
    "averaged weights": Pattern(optimizer=weighted_average),
    "clipped by norm": Pattern(before_step=clip),
    "accumulation": Pattern(accumulates=True),
    "loss scale": Pattern(scales=True, before_step=clip),
    "optimizer of a subclass": Pattern(optimizer=lambda model: Descending(model.parameters(), lr=0.05, momentum=0.9)),
    "AdamW": Pattern(optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=0.01)),
    "fused optimizer": Pattern(optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)),
    "foreach optimizer": Pattern(optimizer=lambda model: torch.optim.NAdam(model.parameters(), lr=0.01, foreach=True)),
}


def train(pattern: Pattern, rank: int, text: str | None = None, way: str = "") -> Tensor:
    """The weights after some steps under a plan, in one of `WAYS`; under DDP where there is none."""
    model = pattern.model()
    optimizer = pattern.optimizer(model)
    scaler = GradScaler("cpu", init_scale=2.0**8, growth_interval=3, enabled=pattern.scales)
    module = (
        model
        if way == "attach"
        else DistributedDataParallel(model, **{"bucket_cap_mb": BUCKET_CAP, **dict(pattern.ddp)})
    )
    session: Any = None
    if way == "attach":
        session = attach(model, optimizer, text, scale=LossScale(scaler))
    elif way == "wrap":
        session = trimtab.attach(module, optimizer, scaler=scaler, plan=text, run_directory="run")
    elif way == "hook":
        session = trimtab.HookState(optimizer, scaler=scaler, plan=text, run_directory="run")
        module.register_comm_hook(session, trimtab.hook)
    called = pattern.call(module)
    for number in range(STEPS):
        optimizer.zero_grad(set_to_none=number % 2 == 0)
        if pattern.accumulates:
            with session.no_sync() if way == "attach" else module.no_sync():
                pattern.loss(called, number + 50, rank).backward()
        scaler.scale(pattern.loss(called, number, rank)).backward()
        scaler.unscale_(optimizer)
        pattern.before_step(model)
        scaler.step(optimizer)
        scaler.update()
        pattern.after_step(model, number)
    if session is not None:
        assert (session.session if way == "hook" else session).steps == STEPS
        session.close()
    return weights_of(model)


def trained(rank: int, size: int, name: str, folder: Path) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """By DDP, by each way under dense, and compressed."""
    os.chdir(folder)
    pattern = PATTERNS[name]
    dense = {way: train(pattern, rank, "dense", way) for way in pattern.ways}
    return train(pattern, rank), dense, train(pattern, rank, "0.2/all-gather", "attach")


@pytest.mark.pattern("`optimizer.step()`, `scaler.step()` kept", works="the session's step")
@pytest.mark.pattern("gradient accumulation", works="all passes but the last in `session.no_sync()`")
@pytest.mark.pattern("changing gradients, clipping by value", works="works")
@pytest.mark.pattern(
    "a model that stays wrapped in DDP", works="the wrapper exchanges nothing while the session is open"
)
@pytest.mark.pattern(
    "DDP's hook: `no_sync`, clipping, frozen layers, `channels_last`, small buckets",
    works="as in DDP",
)
@pytest.mark.pattern("activation checkpointing, not reentrant", works="works")
@pytest.mark.pattern("`torch.compile` of the model", works="works")
@pytest.mark.pattern("tied weights", works="works")
@pytest.mark.pattern("recurrent networks, parametrizations, `channels_last`", works="works")
@pytest.mark.pattern("several forward passes, one backward pass", works="works")
@pytest.mark.pattern("parameters that a step does not use", works="works, without a flag")
@pytest.mark.pattern("frozen layers", works="works")
@pytest.mark.pattern("autocast (bfloat16)", works="works")
@pytest.mark.pattern("fused and foreach optimizers", works="works")
@pytest.mark.pattern("a scheduler stepped each step", works="pass it where trials run")
@pytest.mark.pattern("an optimizer whose `step` calls its parent's", works="counts once")
@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_trains_as_under_ddp_and_compressed_ranks_stay_equal(
    rank_pool: RankPool, name: str, tmp_path: Path
) -> None:
    first, second = rank_pool.run_in_process_group(SIZE, trained, name, tmp_path)
    for ddp, dense, _ in (first, second):
        assert {way: torch.equal(weights, ddp) for way, weights in dense.items()} == dict.fromkeys(dense, True)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[2], second[2])
    assert not torch.equal(first[2], first[0])
