"""The kernels in plain torch: short, on any device, and the oracle that the fast ones are tested against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from trimtab_api.catalogue.wires import VALUES_PER_BLOCK

from trimtab.kernels import block_layout
from trimtab.kernels.results import CompactResult, Tail


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
    i = torch.arange(num_samples, dtype=torch.int64, device=grad.device)
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


def write_blocks(values: Tensor, bits: int) -> Tensor:
    """See `trimtab.kernels.write_blocks`."""
    count = values.numel()
    blocks = values.new_zeros(block_layout.num_blocks(count), VALUES_PER_BLOCK)
    blocks.view(-1)[:count] = values
    scales, codes = _signs(blocks, count) if bits == 2 else _steps(blocks, (1 << (bits - 1)) - 1)
    message = torch.cat([scales.reshape(-1).view(torch.uint8), _packed(codes.view(-1), bits)])
    return message[: block_layout.num_bytes(count, bits)]


def read_blocks(message: Tensor, bits: int, target: Tensor) -> None:
    """See `trimtab.kernels.read_blocks`."""
    count = target.numel()
    num_blocks, head = block_layout.num_blocks(count), 2 * block_layout.num_scales(count, bits)
    # Copied, for a message may begin anywhere.
    scales = message[:head].clone().view(torch.bfloat16).float().view(num_blocks, block_layout.num_scales(1, bits))
    codes = message.new_zeros(num_blocks * VALUES_PER_BLOCK * bits // 8)
    codes[: message.numel() - head] = message[head:]
    read = _unpacked(codes, bits).view(num_blocks, VALUES_PER_BLOCK)
    if bits == 2:
        magnitudes = torch.where(read >= 2, scales[:, 1:], scales[:, :1])
        values = torch.where(read % 2 == 1, -magnitudes, magnitudes)
    else:
        values = (read.float() - ((1 << (bits - 1)) - 1)) * scales
    target.copy_(values.view(-1)[:count])


def _steps(blocks: Tensor, middle: int) -> tuple[Tensor, Tensor]:
    most = torch.where(blocks.isfinite().all(dim=1, keepdim=True), blocks.abs().amax(dim=1, keepdim=True), torch.nan)
    steps = (most / middle).to(torch.bfloat16)
    exact = steps.float()
    multiples = torch.where(exact > 0, blocks / exact, torch.zeros_like(blocks)).round_()
    return steps, (multiples.clamp_(-middle, middle) + middle).to(torch.uint8)


def _signs(blocks: Tensor, count: int) -> tuple[Tensor, Tensor]:
    magnitudes = blocks.double().abs()  # in float64, for sums in any order to come to the same
    is_value = (torch.arange(blocks.numel(), dtype=torch.int64, device=blocks.device) < count).view_as(blocks)
    mean = magnitudes.sum(dim=1, keepdim=True) / is_value.sum(dim=1, keepdim=True).clamp_(min=1)
    is_large = magnitudes > mean
    means = [
        (magnitudes * chosen).sum(dim=1) / chosen.sum(dim=1).clamp_(min=1)
        for chosen in (is_value & ~is_large, is_large)
    ]
    codes = 2 * is_large.to(torch.uint8) + (blocks < 0).to(torch.uint8)
    return torch.stack(means, dim=1).float().to(torch.bfloat16), codes


def _packed(codes: Tensor, bits: int) -> Tensor:
    """uint8 [m], each below 2^bits and m a multiple of what a byte holds, as uint8 [m bits / 8]: the first lowest."""
    per_byte = 8 // bits
    packed = codes[::per_byte].clone()
    for place in range(1, per_byte):
        packed |= codes[place::per_byte] << (bits * place)
    return packed


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    per_byte = 8 // bits
    places = [(packed >> (bits * place)) & ((1 << bits) - 1) for place in range(per_byte)]
    return torch.stack(places, dim=1).view(-1) if per_byte > 1 else packed


def squared_norm(x: Tensor) -> float:
    """Sum of squares, in float64 so that no float32 overflows on the way."""
    return float(x.double().square().sum())
