"""The loops of the CPU kernels, compiled by numba: they see arrays, and hold no lock of the interpreter's.

Compiled code is kept beside the source or under NUMBA_CACHE_DIR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from trimtab.kernels.simd import (
    BLOCK_BYTES,
    LANES,
    STREAM_ALIGNMENT,
    add_block,
    bits_of,
    fence,
    float_of,
    load_float,
    load_index,
    look_block,
    lowest_bit,
    scale_block,
    tail_block,
)

Floats = NDArray[np.float32]
Indices = NDArray[np.int32]
WholeNumbers = NDArray[np.int64]
Halves = NDArray[np.uint16]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])

#: Results larger than a second-level cache are written past it: nothing of them would be left in it to read.
STREAM_FROM_BYTES = 1 << 21
#: Elements that sparse parts are summed in at once: the nearest cache holds them.
SUMMED_AT_ONCE = 1 << 13


def compiled(function: Kernel) -> Kernel:
    """Compile a loop, to run on the calling thread without the interpreter's lock."""
    return cast(Kernel, numba.njit(nogil=True, cache=True)(function))


@compiled
def scale_into(source: Floats, target: Floats, scale: np.float32) -> None:
    """Write ``target`` = scale * source."""
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


@compiled
def fused_select(
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


@compiled
def select_in_place(
    acc: Floats, threshold: np.float32, offset: int, indices: Indices, values: Floats
) -> tuple[int, float, float]:
    """`fused_select` on acc itself: only what is sent is written."""
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


@compiled
def sample(grad: Floats, residual: Floats, draw: int, magnitudes: Floats) -> None:
    """Write |grad + residual| at one hashed place of each stride."""
    num_samples = magnitudes.size
    stride = grad.size // num_samples
    for i in range(num_samples):
        mixed = np.uint32(i + draw * num_samples)  # then the finalizer of MurmurHash3
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        mixed = np.uint32(mixed ^ (mixed >> np.uint32(16)))
        position = i * stride + ((np.int64(mixed) * stride) >> 32)
        magnitudes[i] = abs(grad[position] + residual[position])


@compiled
def tail(acc: Floats, threshold: np.float32) -> tuple[Any, float, float, Any]:
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


@compiled
def take(acc: Floats, indices: Indices, values: Floats) -> None:
    """Gather acc at the indices."""
    for j in range(indices.size):
        values[j] = acc[indices[j]]


@compiled
def put(acc: Floats, indices: Indices, values: Floats) -> None:
    """Scatter the values to acc."""
    for j in range(indices.size):
        acc[indices[j]] = values[j]


@compiled
def put_back(
    acc: Floats,
    indices: Indices,
    values: Floats,
    boundary: np.float32,
    offset: int,
    kept_indices: Indices,
    kept_values: Floats,
) -> float:
    """Keep the values over the boundary and the first equals, put the others back, and return their squared norm."""
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


@compiled
def clear(acc: Floats, indices: Indices) -> float:
    """Zero acc at the indices, and return the squared norm removed."""
    removed = 0.0
    for j in range(indices.size):
        removed += np.float64(acc[indices[j]]) * np.float64(acc[indices[j]])
        acc[indices[j]] = 0.0
    return removed


@compiled
def scatter_mean(
    out: Floats, indices_at: WholeNumbers, values_at: WholeNumbers, counts: WholeNumbers, scale: np.float32
) -> None:
    """Write ``out`` = scale times the sum of sparse parts, given by the addresses and lengths of their arrays.

    Each range of ``out`` is summed over all parts in a cache, and written once, past it.
    """
    n, address = out.size, out.ctypes.data
    sums, places = np.zeros(SUMMED_AT_ONCE, np.float32), np.zeros(counts.size, np.int64)
    first, stop = 0, min(n, (-address % STREAM_ALIGNMENT) // 4)  # ranges after the first begin on a whole cache line
    while first < n:
        for part in range(counts.size):
            place, end = places[part], counts[part]
            while place < end:
                i = load_index(indices_at[part] + place * 4)
                if i >= stop:
                    break
                sums[i - first] += load_float(values_at[part] + place * 4) * scale
                place += np.int64(1)
            places[part] = place
        num_blocks = (stop - first) // LANES
        for block in range(num_blocks):
            at = block * BLOCK_BYTES
            scale_block(sums.ctypes.data + at, address + first * 4 + at, np.float32(1.0))
        for i in range(first + num_blocks * LANES, stop):
            out[i] = sums[i - first]
        sums[:] = 0.0
        first, stop = stop, min(n, stop + SUMMED_AT_ONCE)
    fence()


@compiled
def round_to_bfloat16(values: Floats, errors: Floats, halves: Halves) -> None:
    """Round to nearest, and to even between two; a NaN stays one. ``halves`` get the upper halves of the results."""
    for i in range(values.size):
        value = values[i]
        bits = bits_of(value)
        rounded = np.uint32(bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
        rounded = rounded if value == value else np.uint32(0x7FC00000)
        halves[i] = np.uint16(rounded >> np.uint32(16))
        sent = float_of(np.uint32(rounded & np.uint32(0xFFFF0000)))
        values[i] = sent
        errors[i] += value - sent


@compiled
def add_bfloat16(target: Floats, halves: Halves) -> None:
    """Add bfloat16 numbers, given as 16 bits each."""
    for i in range(target.size):
        target[i] += float_of(np.uint32(np.uint32(halves[i]) << np.uint32(16)))
