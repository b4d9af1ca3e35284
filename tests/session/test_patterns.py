"""What scripts do with a model under DDP: the same bits with a session under dense, equal ranks under compression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.regression import loss_of, model_of
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

SIZE = 2
STEPS = 5


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
    ddp: tuple[tuple[str, Any], ...] = ()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.out = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
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
    "compiled": Pattern(call=lambda module: torch.compile(module, backend="aot_eager")),
    "several forward passes": Pattern(loss=of_two_batches),
    "clipped by value": Pattern(before_step=lambda model: nn.utils.clip_grad_value_(model.parameters(), 0.05)),
    "gradients changed": Pattern(before_step=lambda model: [p.grad.mul_(0.5) for p in model.parameters()]),
    "evaluation between": Pattern(after_step=evaluating),
    "scheduled every step": Pattern(optimizer=one_cycle),
    "averaged weights": Pattern(optimizer=weighted_average),
    "fused optimizer": Pattern(optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)),
    "foreach optimizer": Pattern(optimizer=lambda model: torch.optim.NAdam(model.parameters(), lr=0.01, foreach=True)),
}


def train(text: str | None, pattern: Pattern, rank: int) -> Tensor:
    """The weights after some steps under a plan; under DDP where it is None."""
    model = pattern.model()
    optimizer = pattern.optimizer(model)
    session = None if text is None else attach(model, optimizer, text)
    module = nn.parallel.DistributedDataParallel(model, **dict(pattern.ddp)) if session is None else model
    called = pattern.call(module)
    for number in range(STEPS):
        optimizer.zero_grad()
        pattern.loss(called, number, rank).backward()
        pattern.before_step(model)
        optimizer.step()
        pattern.after_step(model, number)
    if session is not None:
        assert session.steps == STEPS
        session.close()
    return weights_of(model)


def trained(rank: int, size: int, name: str) -> list[Tensor]:
    return [train(text, PATTERNS[name], rank) for text in (None, "dense", "0.2/all-gather")]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_trains_as_under_ddp_and_compressed_ranks_stay_equal(rank_pool: RankPool, name: str) -> None:
    first, second = rank_pool.run_in_process_group(SIZE, trained, name)
    ddp, dense, compressed = first
    assert torch.equal(dense, ddp)
    assert all(torch.equal(mine, other) for mine, other in zip(first, second, strict=True))
    assert not torch.equal(compressed, dense)
