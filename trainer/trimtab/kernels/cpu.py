"""The kernels for CPU tensors, compiled by numba: one thread a call, without the interpreter's lock.

Compiled code is kept beside the source or under NUMBA_CACHE_DIR. Arrays here are numpy views of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimtab.kernels.compact_result import CompactResult
from trimtab.kernels.simd import (
    BLOCK_BYTES,
    LANES,
    STREAM_ALIGNMENT,
    add_block,
    fence,
    look_block,
    lowest_bit,
    scale_block,
    tail_block,
)
from trimtab.kernels.tail import Tail

Floats = NDArray[np.float32]
Indices = NDArray[np.int32]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])

#: Results larger than a second-level cache are written past it: nothing of them would be left in it to read.
STREAM_FROM_BYTES = 1 << 21


def _compiled(function: Kernel) -> Kernel:
    return cast(Kernel, numba.njit(nogil=True, cache=True)(function))


def scale_into(source: Tensor, target: Tensor, scale: float) -> None:
    """See `trimtab.kernels.scale_into`."""
    if source.numel() * 4 >= STREAM_FROM_BYTES:
        _scale_into(_array(source), _array(target), np.float32(scale))
    else:
        torch.mul(source, scale, out=target)


def fused_select(
    grad: Tensor, residual: Tensor, next_residual: Tensor, threshold: float, capacity: int, offset: int = 0
) -> CompactResult:
    """See `trimtab.kernels.fused_select`."""
    indices, values = _room(capacity)
    found = _fused_select(
        _array(grad), _array(residual), _array(next_residual), np.float32(threshold), offset, indices, values
    )
    return _result(indices, values, *found)


def select_in_place(acc: Tensor, threshold: float, capacity: int, offset: int = 0) -> CompactResult:
    """See `trimtab.kernels.select_in_place`."""
    indices, values = _room(capacity)
    found = _select_in_place(_array(acc), np.float32(threshold), offset, indices, values)
    return _result(indices, values, *found)


def sample(grad: Tensor, residual: Tensor, num_samples: int, draw: int = 0) -> Tensor:
    """See `trimtab.kernels.sample`."""
    magnitudes = torch.empty(num_samples, dtype=torch.float32)
    _sample(_array(grad), _array(residual), draw, _array(magnitudes))
    return magnitudes


def accumulate(grad: Tensor, residual: Tensor, next_residual: Tensor) -> float:
    """See `trimtab.kernels.accumulate`."""
    return fused_select(grad, residual, next_residual, threshold=float("inf"), capacity=0).squared_norm_before


def tail(acc: Tensor, threshold: float) -> Tail:
    """See `trimtab.kernels.tail`."""
    count, total, squares, largest = _tail(_array(acc), np.float32(threshold))
    return Tail(int(count), total, squares, float(largest))


def take(acc: Tensor, indices: Tensor) -> Tensor:
    """See `trimtab.kernels.take`."""
    values = torch.empty(indices.numel(), dtype=torch.float32)
    _take(_array(acc), _array(indices), _array(values))
    return values


def put(acc: Tensor, indices: Tensor, values: Tensor) -> None:
    """See `trimtab.kernels.put`."""
    _put(_array(acc), _array(indices), _array(values))


def put_back(
    acc: Tensor, indices: Tensor, values: Tensor, k: int, boundary: float, offset: int
) -> tuple[Tensor, Tensor, float]:
    """See `trimtab.kernels.put_back`."""
    kept_indices, kept_values = _room(k)
    returned = _put_back(
        _array(acc), _array(indices), _array(values), np.float32(boundary), offset, kept_indices, kept_values
    )
    return torch.from_numpy(kept_indices), torch.from_numpy(kept_values), returned


def clear(acc: Tensor, indices: Tensor) -> float:
    """See `trimtab.kernels.clear`."""
    return _clear(_array(acc), _array(indices))


def scatter_mean(out: Tensor, parts: Sequence[tuple[Tensor, Tensor]], scale: float) -> None:
    """See `trimtab.kernels.scatter_mean`."""
    out.zero_()
    for indices, values in parts:
        _scatter_add(_array(out), _array(indices), _array(values), np.float32(scale))


def _array(tensor: Tensor) -> Any:
    return tensor.detach().numpy()


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


@_compiled
def _scale_into(source: Floats, target: Floats, scale: np.float32) -> None:
    n, address = target.size, target.ctypes.data
    head = min(n, (-address % STREAM_ALIGNMENT) // 4)
    num_blocks = (n - head) // LANES
    for i in range(head):
        target[i] = scale * source[i]
    for block in range(num_blocks):
        at = head * 4 + block * BLOCK_BYTES
        scale_block(source.ctypes.data + at, address + at, scale)
    for i in range(head + num_blocks * LANES, n):
        target[i] = scale * source[i]
    fence()


@_compiled
def _fused_select(
    grad: Floats,
    residual: Floats,
    next_residual: Floats,
    threshold: np.float32,
    offset: int,
    indices: Indices,
    values: Floats,
) -> tuple[int, float, float]:
    """Fill ``indices`` and ``values``; returns how many reached the threshold, squared norm before, and removed."""
    n = grad.size
    target = next_residual.ctypes.data
    streaming = n * 4 >= STREAM_FROM_BYTES
    head = min(n, (-target % STREAM_ALIGNMENT) // 4 if streaming else 0)
    num_blocks = (n - head) // LANES
    num_over, before, removed = 0, 0.0, 0.0
    for block in range(-1, num_blocks + 1):  # the few elements before the first and after the last whole block, too
        first = max(0, head + block * LANES)
        if 0 <= block < num_blocks:
            at = first * 4
            mask, squared = add_block(
                grad.ctypes.data + at, residual.ctypes.data + at, target + at, threshold, streaming
            )
        else:
            mask, squared = np.uint64(0), 0.0
            for lane in range((head if block < 0 else n) - first):
                acc = grad[first + lane] + residual[first + lane]
                squared += np.float64(acc) * np.float64(acc)
                reaches = abs(acc) >= threshold
                next_residual[first + lane] = 0.0 if reaches else acc
                mask |= np.uint64(reaches) << np.uint64(lane)
        before += squared
        while mask != 0:
            i = first + np.int64(lowest_bit(mask))
            acc = grad[i] + residual[i]  # the same bits as in the block, and still in the nearest cache
            if num_over < indices.size:
                indices[num_over], values[num_over] = offset + i, acc
                removed += np.float64(acc) * np.float64(acc)
            else:
                next_residual[i] = acc
            num_over += 1
            mask &= mask - np.uint64(1)
    fence()
    return num_over, before, removed


@_compiled
def _select_in_place(
    acc: Floats, threshold: np.float32, offset: int, indices: Indices, values: Floats
) -> tuple[int, float, float]:
    """`_fused_select` on acc itself: only what is sent is written."""
    n = acc.size
    num_blocks = n // LANES
    num_over, before, removed = 0, 0.0, 0.0
    for block in range(num_blocks + 1):
        first = block * LANES
        if block < num_blocks:
            mask, squared = look_block(acc.ctypes.data + block * BLOCK_BYTES, threshold)
        else:
            mask, squared = np.uint64(0), 0.0
            for lane in range(n - first):
                value = acc[first + lane]
                squared += np.float64(value) * np.float64(value)
                if abs(value) >= threshold:
                    mask |= np.uint64(1) << np.uint64(lane)
        before += squared
        while mask != 0:
            i = first + np.int64(lowest_bit(mask))
            if num_over < indices.size:
                indices[num_over], values[num_over] = offset + i, acc[i]
                removed += np.float64(acc[i]) * np.float64(acc[i])
                acc[i] = 0.0
            num_over += 1
            mask &= mask - np.uint64(1)
    return num_over, before, removed


@_compiled
def _sample(grad: Floats, residual: Floats, draw: int, magnitudes: Floats) -> None:
    num_samples = magnitudes.size
    stride = grad.size // num_samples
    for i in range(num_samples):
        mixed = np.uint32(i + draw * num_samples)  # then the finalizer of MurmurHash3
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        mixed = np.uint32(mixed ^ (mixed >> np.uint32(16)))
        position = i * stride + ((np.int64(mixed) * stride) >> 32)
        magnitudes[i] = abs(grad[position] + residual[position])


@_compiled
def _tail(acc: Floats, threshold: np.float32) -> tuple[Any, float, float, Any]:
    """Count, sum, sum of squares and largest of the magnitudes that reach the threshold."""
    num_blocks = acc.size // LANES
    count, total, squares, largest = np.int64(0), 0.0, 0.0, np.float32(0.0)
    for block in range(num_blocks):
        hits, block_total, block_squares, block_largest = tail_block(acc.ctypes.data + block * BLOCK_BYTES, threshold)
        count += np.int64(hits)
        total += block_total
        squares += block_squares
        largest = max(largest, block_largest)
    for i in range(num_blocks * LANES, acc.size):
        magnitude = abs(acc[i])
        if magnitude >= threshold:
            count += 1
            total += np.float64(magnitude)
            squares += np.float64(magnitude) * np.float64(magnitude)
            largest = max(largest, magnitude)
    return count, total, squares, largest


@_compiled
def _take(acc: Floats, indices: Indices, values: Floats) -> None:
    for j in range(indices.size):
        values[j] = acc[indices[j]]


@_compiled
def _put(acc: Floats, indices: Indices, values: Floats) -> None:
    for j in range(indices.size):
        acc[indices[j]] = values[j]


@_compiled
def _put_back(
    acc: Floats,
    indices: Indices,
    values: Floats,
    boundary: np.float32,
    offset: int,
    kept_indices: Indices,
    kept_values: Floats,
) -> float:
    equals = kept_indices.size
    for j in range(indices.size):
        if abs(values[j]) > boundary:
            equals -= 1
    kept, returned = 0, 0.0
    for j in range(indices.size):
        magnitude = abs(values[j])
        keeps = magnitude > boundary
        if magnitude == boundary and equals > 0:
            keeps = True
            equals -= 1
        if keeps and kept < kept_indices.size:
            kept_indices[kept], kept_values[kept] = indices[j], values[j]
            kept += 1
        else:
            acc[indices[j] - offset] = values[j]
            returned += np.float64(values[j]) * np.float64(values[j])
    return returned


@_compiled
def _clear(acc: Floats, indices: Indices) -> float:
    removed = 0.0
    for j in range(indices.size):
        removed += np.float64(acc[indices[j]]) * np.float64(acc[indices[j]])
        acc[indices[j]] = 0.0
    return removed


@_compiled
def _scatter_add(out: Floats, indices: Indices, values: Floats, scale: np.float32) -> None:
    for j in range(indices.size):
        out[indices[j]] += values[j] * scale
