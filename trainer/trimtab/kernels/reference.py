"""The kernels in plain torch: short, on any device, and the oracle that the fast ones are tested against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.kernels.compact_result import CompactResult
from trimtab.kernels.tail import Tail


def scale_into(source: Tensor, target: Tensor, scale: float) -> None:
    """See `trimtab.kernels.scale_into`."""
    torch.mul(source, scale, out=target)


def fused_select(
    grad: Tensor, residual: Tensor, next_residual: Tensor, threshold: float, capacity: int, offset: int = 0
) -> CompactResult:
    """See `trimtab.kernels.fused_select`."""
    torch.add(grad, residual, out=next_residual)
    return select_in_place(next_residual, threshold, capacity, offset)


def select_in_place(acc: Tensor, threshold: float, capacity: int, offset: int = 0) -> CompactResult:
    """See `trimtab.kernels.select_in_place`."""
    before = squared_norm(acc)
    over = (acc.abs() >= threshold).nonzero().flatten()
    chosen = over[:capacity]
    values = acc[chosen]
    acc[chosen] = 0.0
    return CompactResult((chosen + offset).to(torch.int32), values, over.numel(), before, squared_norm(acc))


def sample(grad: Tensor, residual: Tensor, num_samples: int, draw: int = 0) -> Tensor:
    """See `trimtab.kernels.sample`."""
    stride = grad.numel() // num_samples
    i = torch.arange(num_samples, device=grad.device)
    mixed = i + draw * num_samples
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):  # the finalizer of MurmurHash3
        mixed = ((mixed ^ (mixed >> shift)) * factor) & 0xFFFFFFFF
    positions = i * stride + ((mixed * stride) >> 32)
    return (grad[positions] + residual[positions]).abs()


def accumulate(grad: Tensor, residual: Tensor, next_residual: Tensor) -> float:
    """See `trimtab.kernels.accumulate`."""
    return squared_norm(torch.add(grad, residual, out=next_residual))


def tail(acc: Tensor, threshold: float) -> Tail:
    """See `trimtab.kernels.tail`."""
    magnitudes = acc.abs()
    over = magnitudes[magnitudes >= threshold].double()
    return Tail(over.numel(), float(over.sum()), float(over.square().sum()), float(over.max()) if over.numel() else 0.0)


def take(acc: Tensor, indices: Tensor) -> Tensor:
    """See `trimtab.kernels.take`."""
    return acc[indices.long()]


def put(acc: Tensor, indices: Tensor, values: Tensor) -> None:
    """See `trimtab.kernels.put`."""
    acc[indices.long()] = values


def put_back(
    acc: Tensor, indices: Tensor, values: Tensor, k: int, boundary: float, offset: int
) -> tuple[Tensor, Tensor, float]:
    """See `trimtab.kernels.put_back`."""
    magnitudes = values.abs()
    kept = magnitudes > boundary
    equals = (magnitudes == boundary).nonzero().flatten()
    kept[equals[: k - int(kept.sum())]] = True
    put(acc, indices[~kept] - offset, values[~kept])
    return indices[kept], values[kept], squared_norm(values[~kept])


def clear(acc: Tensor, indices: Tensor) -> float:
    """See `trimtab.kernels.clear`."""
    removed = squared_norm(take(acc, indices))
    acc[indices.long()] = 0.0
    return removed


def scatter_mean(out: Tensor, parts: Sequence[tuple[Tensor, Tensor]], scale: float) -> None:
    """See `trimtab.kernels.scatter_mean`."""
    out.zero_()
    for indices, values in parts:
        # Indices are unique within a part, so this addition has one order and the same bits everywhere.
        out[indices.long()] += values * scale


def round_to_bfloat16(values: Tensor, errors: Tensor) -> Tensor:
    """See `trimtab.kernels.round_to_bfloat16`."""
    rounded = values.to(torch.bfloat16)
    errors += values - rounded
    values.copy_(rounded)
    return rounded


def add_bfloat16(target: Tensor, rounded: Tensor) -> None:
    """See `trimtab.kernels.add_bfloat16`."""
    target += rounded


def squared_norm(x: Tensor) -> float:
    """Sum of squares, in float64 so that no float32 overflows on the way."""
    return float(x.double().square().sum())
