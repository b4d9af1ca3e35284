"""Second moments under local steps, kept at what steps on the mean gradient of all ranks would leave.

Adam divides by the root of a running mean v of squares. A rank's own gradient is the mean one, g, and noise of variance
s; in the mean over N ranks the noise has variance s / N. So local steps would let v grow from g^2 + s / N towards
g^2 + s, N times as much where noise prevails as it mostly does: steps up to sqrt(N) times as short, also for the
thousand steps that v remembers after ranks exchange gradients again. What a step adds to v is therefore cut down to

    g^2 + s / N        of the        g^2 + s        that it holds,

by tensor, with s from the first moment m, in which noise has averaged out: m^2 is g^2 + q s, q = (1 - b1) / (1 + b1).
Measured in docs/decisions/adam.md; the papers on local steps leave v alone (QAdam, DiLoCo, SparseLoCo).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_MEAN, _SQUARE = "exp_avg", "exp_avg_sq"
#: A first moment that remembers less than this tells noise from gradient no more.
_LEAST_MEMORY = 0.5


class SecondMoments:
    """Of the optimizers of one rank; those that keep no first and second moment as torch's Adam does are left alone."""

    def __init__(
        self, optimizers: Sequence[torch.optim.Optimizer], num_ranks: int, is_local: Callable[[], bool]
    ) -> None:
        """``is_local``: whether the step that begins is one of this rank's own."""
        self._num_ranks, self._is_local = num_ranks, is_local
        self._before: dict[Tensor, Tensor] = {}
        """By parameter: its second moment before the step under way."""
        self._handles = [each.register_step_pre_hook(self._before_step) for each in optimizers]
        self._handles += [each.register_step_post_hook(self._after_step) for each in optimizers]

    def close(self) -> None:
        """Let go of the optimizers."""
        for handle in self._handles:
            handle.remove()

    @torch.no_grad()
    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._before.clear()
        if self._is_local():
            for group in optimizer.param_groups:
                if _memory(group) >= _LEAST_MEMORY:
                    self._remember(group["params"], optimizer.state)

    def _remember(self, parameters: Sequence[Tensor], states: Mapping[Tensor, Any]) -> None:
        for parameter in parameters:
            state = states.get(parameter)
            if parameter.grad is None:
                continue
            if not state:  # its first step
                self._before[parameter] = torch.zeros_like(parameter)
            elif _SQUARE in state:
                self._before[parameter] = state[_SQUARE].clone()

    @torch.no_grad()
    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        before, self._before = self._before, {}  # a step within a step is looked at once
        if not before:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                state = optimizer.state.get(parameter, {})
                if parameter in before and _MEAN in state and _SQUARE in state:
                    as_of_mean_gradients(state, before[parameter], group["betas"], self._num_ranks)


def keeps_adams_moments(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is known before its first step that a local step's second moments will be cut, of all parameters."""
    adams = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam)
    return isinstance(optimizer, adams) and all(_memory(each) >= _LEAST_MEMORY for each in optimizer.param_groups)


def as_of_mean_gradients(state: dict[str, Any], before: Tensor, betas: tuple[float, float], num_ranks: int) -> None:
    """Cut what one local step has added to a tensor's second moment, which was ``before``; ``state`` is Adam's."""
    mean, square = state[_MEAN], state[_SQUARE]
    if not square.is_floating_point() or not mean.is_floating_point():
        return
    added = torch.sub(square, before, alpha=betas[1])
    in_square = added.sum(dtype=torch.float32) / (1 - betas[1])
    in_mean = (
        torch.linalg.vector_norm(mean, dtype=torch.float32).square()
        / (1 - betas[0] ** state.get("step", float("inf"))) ** 2
    )
    noise_in_mean = (1 - betas[0]) / (1 + betas[0])
    tiny = torch.finfo(torch.float32).tiny
    noise = ((in_square - in_mean) / ((1 - noise_in_mean) * in_square).clamp_min(tiny)).nan_to_num(0).clamp(0, 1)
    square.addcmul_(added, (noise * (1 - 1 / num_ranks)).to(square.dtype), value=-1)


def _memory(group: dict[str, Any]) -> float:
    """Of the first moment; 0 where a group has no two betas that tell."""
    betas = group.get("betas")
    fits = isinstance(betas, (tuple, list)) and len(betas) == 2 and all(0 <= float(each) < 1 for each in betas)
    return float(betas[0]) if fits and betas else 0.0
