"""Trainings whose ranks are threads of one process: the real schemes, over queues in place of a network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import torch
from char_lm import GPT, Text, cross_entropy, read_library
from kit.in_process import Ranks
from torch import Tensor, nn
from trimtab.collectives import Exchanged
from trimtab.plan.plan import Plan
from trimtab.workloads import digits


class Workload(Protocol):
    """A model, what it trains on and by which optimizer."""

    def model(self) -> nn.Module: ...

    def optimizer(self, model: nn.Module, num_steps: int) -> tuple[torch.optim.Optimizer, list[float]]:
        """The optimizer, and its learning rate at each step."""

    def loss(self, model: nn.Module, draws: torch.Generator) -> Tensor:
        """Of one rank's next batch."""

    def evaluate(self, model: nn.Module) -> tuple[float, float]:
        """Accuracy and loss on what is held out."""


class Digits:
    """A perceptron on scikit-learn's digits under SGD with momentum, whose learning rate falls to zero."""

    def __init__(self, seed: int, hidden: int) -> None:
        training, self._held = digits.data(seed)
        self._images, self._labels = training.tensors
        self._hidden = hidden

    def model(self) -> nn.Module:
        h = self._hidden
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, digits.NUM_CLASSES)
        )

    def optimizer(self, model: nn.Module, num_steps: int) -> tuple[torch.optim.Optimizer, list[float]]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
        rates = []
        for _ in range(num_steps):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return optimizer, rates

    def loss(self, model: nn.Module, draws: torch.Generator) -> Tensor:
        batch = torch.randint(len(self._images), (16,), generator=draws)
        return nn.functional.cross_entropy(model(self._images[batch]), self._labels[batch], label_smoothing=0.1)

    def evaluate(self, model: nn.Module) -> tuple[float, float]:
        return digits.evaluate(model, self._held)


class CharacterGpt:
    """The character GPT of examples/char_lm.py, 0.3 million parameters, under AdamW."""

    def __init__(self, seed: int, hidden: int) -> None:
        training, held = read_library(seed, 800_000)
        self._windows, self._held = Text(training, 64), Text(held, 64)

    def model(self) -> nn.Module:
        return GPT(64, 96, 2, 4)

    def optimizer(self, model: nn.Module, num_steps: int) -> tuple[torch.optim.Optimizer, list[float]]:
        return torch.optim.AdamW(model.parameters(), lr=1e-3), [1e-3] * num_steps

    def loss(self, model: nn.Module, draws: torch.Generator) -> Tensor:
        chosen = torch.randint(len(self._windows), (8,), generator=draws).tolist()
        inputs, targets = map(torch.stack, zip(*(self._windows[index] for index in chosen), strict=True))
        return cross_entropy(model(inputs), targets)

    def evaluate(self, model: nn.Module) -> tuple[float, float]:
        inputs, targets = map(torch.stack, zip(*(self._held[index] for index in range(96)), strict=True))
        with torch.no_grad():
            return 0.0, float(cross_entropy(model(inputs), targets))


WORKLOADS = {"digits": Digits, "gpt": CharacterGpt}


class TopkOfSum:
    """The k largest elements of the sum of what all ranks hold back, which no scheme can choose without sending all."""

    def __init__(self, k: int, num_ranks: int, num_elements: int) -> None:
        self._k, self._num_ranks, self._residual = k, num_ranks, torch.zeros(num_elements)

    def exchange(self, grads: list[Tensor]) -> tuple[Tensor, list[Exchanged]]:
        """As `Ranks.exchange`; nothing is told of it."""
        self._residual += torch.stack(grads).mean(0)
        chosen = self._residual.abs().topk(self._k).indices
        update = torch.zeros_like(self._residual).index_copy_(0, chosen, self._residual[chosen])
        self._residual[chosen] = 0
        return update, []

    def close(self) -> None: ...


@dataclass(frozen=True)
class Step:
    """What came of one step."""

    model: nn.Module
    """The trained one, of rank 0."""
    ranks: Ranks | TopkOfSum
    exchanged: list[Exchanged]
    """Of each rank; none of `TopkOfSum`."""
    num_applied: int
    """Elements of the update that are not zero."""
    exchange_seconds: float
    """In which the ranks, threads of one process, exchanged; no network is part of it."""

    @property
    def gain(self) -> float:
        """The part of what was held back, and came in, that got through."""
        after = sum(each.squared_norm_after for each in self.exchanged)
        return 1 - after / sum(each.squared_norm_before for each in self.exchanged)


def train(
    workload: Workload,
    plan: Plan | int,
    num_ranks: int,
    num_steps: int,
    seed: int,
    hosts: tuple[tuple[int, ...], ...] = (),
) -> Iterator[Step]:
    """Train under a plan, or with so many elements of `TopkOfSum`, step by step.

    Under source *update* each rank's own optimizer makes what is exchanged; else one steps on the mean gradient.
    """
    torch.manual_seed(seed)
    is_update = isinstance(plan, int) or plan.local_steps > 0
    models = [workload.model() for _ in range(num_ranks if is_update else 1)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    optimizers, rates = zip(*(workload.optimizer(model, num_steps) for model in models), strict=True)
    anchor = nn.utils.parameters_to_vector(models[0].parameters()).detach().clone()
    n = anchor.numel()
    ranks = TopkOfSum(plan, num_ranks, n) if isinstance(plan, int) else Ranks(plan, num_ranks, n, hosts)
    draws = [torch.Generator().manual_seed(1000 * seed + rank) for rank in range(num_ranks)]
    try:
        for step in range(num_steps):
            grads = []
            for rank, draw in enumerate(draws):
                model, optimizer = models[rank % len(models)], optimizers[rank % len(models)]
                optimizer.zero_grad(set_to_none=True)
                workload.loss(model, draw).backward()
                if is_update:
                    optimizer.param_groups[0]["lr"] = rates[0][step]
                    optimizer.step()
                    grads.append(anchor - nn.utils.parameters_to_vector(model.parameters()).detach())
                else:
                    grads.append(nn.utils.parameters_to_vector([each.grad for each in model.parameters()]))
            began = perf_counter()
            update, exchanged = ranks.exchange(grads)
            seconds = perf_counter() - began
            if is_update:
                anchor = anchor - update
                for model in models:
                    nn.utils.vector_to_parameters(anchor.clone(), model.parameters())
            else:
                for parameter, part in zip(
                    models[0].parameters(), update.split([each.numel() for each in models[0].parameters()]), strict=True
                ):
                    parameter.grad = part.view_as(parameter)
                optimizers[0].param_groups[0]["lr"] = rates[0][step]
                optimizers[0].step()
            yield Step(models[0], ranks, exchanged, int(update.count_nonzero()), seconds)
    finally:
        ranks.close()
