"""Second moments under local steps, kept at what steps on the mean gradient of all ranks would leave.

Adam divides by the root of a running mean v of squares. A rank's own gradient is the mean one, g, and noise of variance
s; in the mean over N ranks the noise has variance s / N. So local steps would let v grow from g^2 + s / N towards
g^2 + s, N times as much where noise prevails as it mostly does: steps up to sqrt(N) times as short, also for the
thousand steps that v remembers after ranks exchange gradients again. What a step adds to v is therefore cut down to

    g^2 + s / N        of the        g^2 + s        that it holds,

by tensor, with s from the first moment m, in which noise has averaged out: m^2 is g^2 + q s, q = (1 - b1) / (1 + b1).
Measured in docs/explanation/local-sgd.md; the papers on local steps leave v alone (QAdam, DiLoCo, SparseLoCo).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trimtab.engine.gradients.norms import norms_of

_MEAN, _SQUARE = "exp_avg", "exp_avg_sq"
#: A first moment that remembers less than this tells noise from gradient no more.
_LEAST_MEMORY = 0.5


class SecondMoments:
    """Second moments of one rank's optimizers; optimizers without Adam's first and second moment are left alone."""

    def __init__(
        self, optimizers: Sequence[torch.optim.Optimizer], num_ranks: int, is_local: Callable[[], bool]
    ) -> None:
        """``is_local``: whether the step that begins is one of this rank's own."""
        self._num_ranks, self._is_local = num_ranks, is_local
        self._before: dict[Tensor, Tensor] = {}
        """By parameter: its second moment before the step under way."""
        self._room: dict[Tensor, Tensor] = {}
        """Memory of these, from step to step: fresh memory costs a CPU more than a pass over it."""
        self._handles = [each.register_step_pre_hook(self._before_step) for each in optimizers]
        self._handles += [each.register_step_post_hook(self._after_step) for each in optimizers]

    def close(self) -> None:
        """Let go of the optimizers."""
        for handle in self._handles:
            handle.remove()

    @torch.no_grad()
    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._before.clear()
        if not self._is_local():
            self._room.clear()
            return
        for group in optimizer.param_groups:
            if _memory(group) >= _LEAST_MEMORY:
                self._remember(group["params"], optimizer.state)

    def _remember(self, parameters: Sequence[Tensor], states: Mapping[Tensor, Any]) -> None:
        learning = [parameter for parameter in parameters if parameter.grad is not None]
        later = [parameter for parameter in learning if _SQUARE in states.get(parameter, {})]
        first = [parameter for parameter in learning if not states.get(parameter)]
        self._before.update((parameter, torch.zeros_like(parameter)) for parameter in first)
        if later:
            squares = [states[parameter][_SQUARE] for parameter in later]
            rooms = [self._room_for(*each) for each in zip(later, squares, strict=True)]
            torch._foreach_copy_(rooms, squares)
            self._before.update(zip(later, rooms, strict=True))

    def _room_for(self, parameter: Tensor, square: Tensor) -> Tensor:
        room = self._room.get(parameter)
        if room is None or room.dtype != square.dtype or room.stride() != square.stride():
            room = self._room[parameter] = torch.empty_like(square)
        return room

    @torch.no_grad()
    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        before, self._before = self._before, {}  # a step within a step is looked at once
        if not before:
            return
        for group in optimizer.param_groups:
            known = [(optimizer.state.get(each, {}), before[each]) for each in group["params"] if each in before]
            if kept := [(state, each) for state, each in known if _has_moments(state)]:
                states, squares = zip(*kept, strict=True)
                as_of_mean_gradients(states, squares, group["betas"], self._num_ranks)


def keeps_adams_moments(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether second moments of all parameters will be cut, as known before the first local step."""
    adams = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam)
    return isinstance(optimizer, adams) and all(_memory(each) >= _LEAST_MEMORY for each in optimizer.param_groups)


def as_of_mean_gradients(
    states: Sequence[dict[str, Any]], before: tuple[Tensor, ...], betas: tuple[float, float], num_ranks: int
) -> None:
    """Cut what one local step has added to second moments.

    Args:
        states: Adam's states, by tensor.
        before: The second moments before the step, by tensor; overwritten.
        betas: Adam's.
        num_ranks: N.
    """
    squares, means = [state[_SQUARE] for state in states], [state[_MEAN] for state in states]
    sums = _subtracted(before, squares, 1 / betas[1])
    added = before  # times -1 / b2
    in_squares = torch.stack(sums) * (-betas[1] / (1 - betas[1]))
    in_means = torch.stack(norms_of(means)).square() / (1 - betas[0] ** _steps(states, in_squares)) ** 2
    noise_in_mean = (1 - betas[0]) / (1 + betas[0])
    tiny = torch.finfo(torch.float32).tiny
    noise = (in_squares - in_means) / ((1 - noise_in_mean) * in_squares).clamp_min(tiny)
    cut = noise.nan_to_num(0).clamp(0, 1) * (betas[1] * (1 - 1 / num_ranks))
    for square, more, share in zip(squares, added, cut.unbind(), strict=True):
        square.addcmul_(more, share.to(square.dtype))


def _steps(states: Sequence[dict[str, Any]], like: Tensor) -> Tensor:
    """Return how many steps each tensor has taken, float32 [m]; infinitely many where that is not known."""
    steps = [state.get("step", float("inf")) for state in states]
    if all(isinstance(each, Tensor) for each in steps):
        return torch.stack([each.reshape(()).float() for each in steps]).to(like.device)
    return torch.tensor([float(each) for each in steps], dtype=torch.float32, device=like.device)


def _subtracted(before: tuple[Tensor, ...], squares: list[Tensor], scale: float) -> tuple[Tensor, ...] | list[Tensor]:
    """Subtract the scaled ``squares``, which are no less; return what that leaves of each tensor, summed, float32.

    In few launches on a GPU. A CPU sums what its cache still holds, ten times as fast as it takes norms of this order.
    """
    if before[0].is_cuda and all(each.dtype == torch.float32 for each in before):
        torch._foreach_add_(before, squares, alpha=-scale)
        return torch._foreach_neg(torch._foreach_norm(before, 1))
    return [
        each.sub_(square, alpha=scale).sum(dtype=torch.float32) for each, square in zip(before, squares, strict=True)
    ]


def _has_moments(state: dict[str, Any]) -> bool:
    return all(name in state and state[name].is_floating_point() for name in (_MEAN, _SQUARE))


def _memory(group: dict[str, Any]) -> float:
    """Return the decay factor of the first moment; 0 if the group has no two betas that tell."""
    betas = group.get("betas")
    fits = isinstance(betas, (tuple, list)) and len(betas) == 2 and all(0 < float(each) < 1 for each in betas)
    return float(betas[0]) if fits and betas else 0.0
