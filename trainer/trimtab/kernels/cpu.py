"""The kernels for CPU tensors: their `loops` are compiled, one thread a call, without the interpreter's lock.

Arrays there are numpy views of the tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimtab.kernels import block_layout, block_loops, loops
from trimtab.kernels.loops import STREAM_FROM_BYTES, Floats, Indices, WholeNumbers
from trimtab.kernels.results import CompactResult, Tail


def scale_into(source: Tensor, target: Tensor, scale: float) -> None:
    """See `trimtab.kernels.scale_into`."""
    if source.numel() * 4 >= STREAM_FROM_BYTES:
        loops.scale_into(_array(source), _array(target), np.float32(scale))
    else:
        torch.mul(source, scale, out=target)


def fused_select(
    grad: Tensor, residual: Tensor, next_residual: Tensor, threshold: float, capacity: int, offset: int = 0
) -> CompactResult:
    """See `trimtab.kernels.fused_select`."""
    indices, values = _room(capacity)
    found = loops.fused_select(
        _array(grad), _array(residual), _array(next_residual), np.float32(threshold), offset, indices, values
    )
    return _result(indices, values, *found)


def select_in_place(acc: Tensor, threshold: float, capacity: int, offset: int = 0) -> CompactResult:
    """See `trimtab.kernels.select_in_place`."""
    indices, values = _room(capacity)
    found = loops.select_in_place(_array(acc), np.float32(threshold), offset, indices, values)
    return _result(indices, values, *found)


def sample(grad: Tensor, residual: Tensor, num_samples: int, draw: int = 0) -> Tensor:
    """See `trimtab.kernels.sample`."""
    magnitudes = torch.empty(num_samples, dtype=torch.float32)
    loops.sample(_array(grad), _array(residual), draw, _array(magnitudes))
    return magnitudes


def accumulate(grad: Tensor, residual: Tensor, next_residual: Tensor) -> float:
    """See `trimtab.kernels.accumulate`."""
    return fused_select(grad, residual, next_residual, threshold=float("inf"), capacity=0).squared_norm_before


def tail(acc: Tensor, threshold: float) -> Tail:
    """See `trimtab.kernels.tail`."""
    count, total, squares, largest = loops.tail(_array(acc), np.float32(threshold))
    return Tail(int(count), total, squares, float(largest))


def take(acc: Tensor, indices: Tensor) -> Tensor:
    """See `trimtab.kernels.take`."""
    values = torch.empty(indices.numel(), dtype=torch.float32)
    loops.take(_array(acc), _array(indices), _array(values))
    return values


def put(acc: Tensor, indices: Tensor, values: Tensor) -> None:
    """See `trimtab.kernels.put`."""
    loops.put(_array(acc), _array(indices), _array(values))


def put_back(
    acc: Tensor, indices: Tensor, values: Tensor, k: int, boundary: float, offset: int
) -> tuple[Tensor, Tensor, float]:
    """See `trimtab.kernels.put_back`."""
    kept_indices, kept_values = _room(k)
    returned = loops.put_back(
        _array(acc), _array(indices), _array(values), np.float32(boundary), offset, kept_indices, kept_values
    )
    return torch.from_numpy(kept_indices), torch.from_numpy(kept_values), returned


def clear(acc: Tensor, indices: Tensor) -> float:
    """See `trimtab.kernels.clear`."""
    return loops.clear(_array(acc), _array(indices))


def scatter_mean(out: Tensor, parts: Sequence[tuple[Tensor, Tensor]], scale: float) -> None:
    """See `trimtab.kernels.scatter_mean`."""
    parts = [(indices.contiguous(), values.contiguous()) for indices, values in parts]
    indices_at, values_at = _whole([i.data_ptr() for i, _ in parts]), _whole([v.data_ptr() for _, v in parts])
    counts = _whole([i.numel() for i, _ in parts])
    loops.scatter_mean(_array(out), indices_at, values_at, counts, np.float32(scale))


def round_to_bfloat16(values: Tensor, errors: Tensor) -> Tensor:
    """See `trimtab.kernels.round_to_bfloat16`."""
    rounded = torch.empty(values.numel(), dtype=torch.bfloat16)
    loops.round_to_bfloat16(_array(values), _array(errors), _halves(rounded))
    return rounded


def add_bfloat16(target: Tensor, rounded: Tensor) -> None:
    """See `trimtab.kernels.add_bfloat16`."""
    loops.add_bfloat16(_array(target), _halves(rounded))


def write_blocks(values: Tensor, bits: int) -> Tensor:
    """See `trimtab.kernels.write_blocks`."""
    count = values.numel()
    num_scales = block_layout.num_scales(count, bits)
    message = np.empty(block_layout.num_bytes(count, bits), np.uint8)
    if bits == 2:
        means = torch.empty(num_scales, dtype=torch.float32)
        block_loops.write_signs(_array(values), _array(means), message[2 * num_scales :])
        scales = _halves(means.to(torch.bfloat16))
    else:
        scales = np.empty(num_scales, np.uint16)
        block_loops.write_steps(_array(values), bits, scales, message[2 * num_scales :])
    message[: 2 * num_scales] = scales.view(np.uint8)
    return torch.from_numpy(message)


def read_blocks(message: Tensor, bits: int, target: Tensor) -> None:
    """See `trimtab.kernels.read_blocks`."""
    head = 2 * block_layout.num_scales(target.numel(), bits)
    data = _array(message)
    scales = (data[:head].copy().view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if bits == 2:
        block_loops.read_signs(scales, data[head:], _array(target))
    else:
        block_loops.read_steps(scales, data[head:], bits, _array(target))


def _whole(numbers: list[int]) -> WholeNumbers:
    return np.array(numbers, np.int64)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().numpy()


def _halves(rounded: Tensor) -> Any:
    return rounded.view(torch.int16).numpy().view(np.uint16)  # numpy knows no bfloat16


def _room(capacity: int) -> tuple[Indices, Floats]:
    return np.empty(capacity, np.int32), np.empty(capacity, np.float32)


def _result(indices: Indices, values: Floats, num_over: int, before: float, removed: float) -> CompactResult:
    num_sent = min(num_over, indices.size)
    return CompactResult(
        torch.from_numpy(indices[:num_sent]),
        torch.from_numpy(values[:num_sent]),
        num_over,
        before,
        max(0.0, before - removed),  # the two sums round apart
    )
