"""A model whose layers take recorded times and compute nothing: what exchanges hide behind where no CPU computes.

Each layer sleeps for as long as it was recorded to take, forward and backward, and hands over gradients that were drawn
once. Ranks that share the cores of one machine do not slow each other's computing then, as ranks with a device of their
own do not; compressing, sending and the engine's hooks take what they take.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LayerTimes:
    """One layer: the sizes of its parameters, and seconds."""

    sizes: tuple[int, ...]
    forward: float
    backward: float


class Sleeper:
    """Sleeps so that the sum of all sleeps is right: what one overslept, the next leaves out."""

    def __init__(self) -> None:
        self._owed = 0.0

    def sleep(self, seconds: float) -> None:
        """Sleep for as long as a layer takes."""
        self._owed += seconds
        if self._owed > 0:
            began = time.perf_counter()
            time.sleep(self._owed)
            self._owed -= time.perf_counter() - began


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, layer: ReplayedLayer, *parameters: Tensor) -> Tensor:
        ctx.layer = layer
        layer.sleeper.sleep(layer.times.forward)
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        layer: ReplayedLayer = ctx.layer
        layer.sleeper.sleep(layer.times.backward)
        # Views that nobody else holds: autograd keeps them as they are, and copies nothing.
        return (*grads, None, *(each.view_as(each) for each in layer.gradients))


class ReplayedLayer(nn.Module):
    """One layer of a `Replayed` model."""

    def __init__(self, times: LayerTimes, sleeper: Sleeper, draws: torch.Generator) -> None:
        super().__init__()
        self.times, self.sleeper = times, sleeper
        for number, size in enumerate(times.sizes):
            self.register_parameter(f"weight{number}", nn.Parameter(torch.zeros(size)))
        self.gradients = [torch.randn(size, generator=draws) for size in times.sizes]

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the inputs, after a while."""
        made: Tensor = _Layer.apply(inputs, self, *self.parameters())
        return made


class Replayed(nn.Sequential):
    """Layers in forward order, whose output is the input; ``seed`` draws the gradients."""

    def __init__(self, layers: Sequence[LayerTimes], seed: int) -> None:
        draws, sleeper = torch.Generator().manual_seed(seed), Sleeper()
        super().__init__(*(ReplayedLayer(times, sleeper, draws) for times in layers))


def record(network: nn.Module, images: Tensor, labels: Tensor, steps: int = 5) -> list[LayerTimes]:
    """Return what each layer with parameters takes, in forward order: the shortest of some steps.

    Layers without parameters count to the next one, forward and backward.
    """
    layers = [each for each in network.modules() if list(each.parameters(recurse=False))]
    order: list[nn.Module] = []
    forward: dict[nn.Module, float] = dict.fromkeys(layers, float("inf"))
    backward = dict(forward)
    mark = 0.0

    def passed(into: dict[nn.Module, float], layer: nn.Module) -> None:
        nonlocal mark
        now = time.perf_counter()
        into[layer] = min(into[layer], now - mark)
        mark = now

    def ran(layer: nn.Module, *_: Any) -> None:
        passed(forward, layer)
        if layer not in order:
            order.append(layer)

    hooks = [layer.register_forward_hook(ran) for layer in layers]
    hooks += [
        next(layer.parameters(recurse=False)).register_post_accumulate_grad_hook(
            lambda _, layer=layer: passed(backward, layer)
        )
        for layer in layers
    ]
    for _ in range(steps):
        network.zero_grad(set_to_none=True)
        mark = time.perf_counter()
        loss = nn.functional.cross_entropy(network(images), labels)
        mark = time.perf_counter()
        loss.backward()
    for hook in hooks:
        hook.remove()
    return [
        LayerTimes(tuple(p.numel() for p in layer.parameters(recurse=False)), forward[layer], backward[layer])
        for layer in order
    ]
