"""A random projection of the weights, small enough to ride in a step's vote: it shows whether all ranks hold the same.

Two sets of weights that differ by a vector d have projections that differ by about the norm of d, whatever the
direction of d. The projection is summed in float64, so it is the same on every kind of processor to a trillionth of the
weights' norm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

#: The direction of a tensor's projection repeats after so many elements, each time with another weight.
_PERIOD = 8192
#: Elements that are brought to float64 at once.
_CHUNK = 128 * _PERIOD
_SEED = 2718

#: Weights whose distance is at most this share of their norm are the same; float64 sums them in another order.
SAME = 1e-11
#: Up to this share of their norm, a hundred steps of float32 rounding on unlike processors explain the distance.
ROUNDING = 1e-5

Verdict = Literal["same", "rounding"]


class RanksDivergedError(RuntimeError):
    """Ranks hold different weights: what they train is no longer one model."""


@dataclass(frozen=True)
class WeightFingerprint:
    """One rank's weights, projected on a direction that all ranks share."""

    projection: float
    norm: float
    """Euclidean norm of the weights, the scale of the projection."""

    @classmethod
    @torch.no_grad()
    def of(cls, parameters: Iterable[Tensor]) -> WeightFingerprint:
        """Take the fingerprint: one pass over the weights."""
        generator = torch.Generator().manual_seed(_SEED)
        direction = torch.randn(_PERIOD, dtype=torch.float64, generator=generator)
        parts: list[Tensor] = []
        for parameter in parameters:
            flat = parameter.detach().reshape(-1)
            direction = direction.to(flat.device)
            for chunk in flat.split(_CHUNK):
                exact = chunk.to(torch.float64)
                rows, rest = divmod(exact.numel(), _PERIOD)
                weights = torch.randn(rows + 1, dtype=torch.float64, generator=generator).to(flat.device)
                whole = exact[: rows * _PERIOD].view(rows, _PERIOD)
                parts.append((whole @ direction) @ weights[:rows])
                parts.append(exact[rows * _PERIOD :] @ direction[:rest] * weights[rows])
                parts.append(torch.linalg.vector_norm(chunk).double())
        numbers = torch.stack(parts).tolist() if parts else []  # one wait for the device
        projection, squared_norm = 0.0, 0.0
        for whole_rows, rest_of_row, norm in zip(numbers[0::3], numbers[1::3], numbers[2::3], strict=True):
            projection += whole_rows
            projection += rest_of_row
            squared_norm += norm**2
        return cls(projection, squared_norm**0.5)


def slots(fingerprint: WeightFingerprint | None, rank: int, num_ranks: int) -> Tensor:
    """Return what one rank adds to a vote: its projection in two halves, and rank 0's norm; else zeros.

    Every rank writes to slots of its own, so a sum over ranks loses nothing.

    Args:
        fingerprint: This rank's; None: zeros alone.
        rank: This rank.
        num_ranks: N.

    Returns:
        float32 [2 N + 1].
    """
    vector = torch.zeros(2 * num_ranks + 1, dtype=torch.float32)
    if fingerprint is not None:
        high = torch.tensor(fingerprint.projection, dtype=torch.float32)
        vector[2 * rank] = high
        vector[2 * rank + 1] = fingerprint.projection - float(high)
        if rank == 0:
            vector[-1] = fingerprint.norm
    return vector


def compare(summed: Sequence[float], step: int) -> Verdict:
    """Judge the ``slots`` of all ranks, summed; every rank comes to the same verdict.

    Raises:
        RanksDivergedError: Some ranks' weights are not rank 0's; names these ranks.
    """
    projections = [high + low for high, low in zip(summed[0:-1:2], summed[1:-1:2], strict=True)]
    norm = summed[-1]
    distances = [abs(projection - projections[0]) for projection in projections]
    diverged = [rank for rank, distance in enumerate(distances) if not distance <= ROUNDING * norm]
    if diverged:
        worst = max(diverged, key=lambda rank: distances[rank])
        raise RanksDivergedError(
            f"rank {worst} holds other weights than rank 0 at step {step}: they differ by about"
            f" {distances[worst]:.3g} where the weights' norm is {norm:.3g}"
            f"{_and_others([rank for rank in diverged if rank != worst])}. Weights part where something changes them on"
            " one rank alone: a parameter that not every rank trains, a gradient or weight changed by hand, another"
            " optimizer"
        )
    return "same" if max(distances) <= SAME * norm else "rounding"


def _and_others(ranks: list[int]) -> str:
    if not ranks:
        return ""
    return f"; so {'does rank' if len(ranks) == 1 else 'do ranks'} {', '.join(map(str, ranks))}"
