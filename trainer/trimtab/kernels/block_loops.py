"""The loops that write values in 8, 4 or 2 bits and read them, a block of values at a time, compiled by numba.

`trimtab.wire.value_formats` says what the codes mean; the first of a byte is the lowest. Arithmetic is in whole
numbers, or without branches, where the compiler would else take one value at a time. No loop calls another function:
what is stored of it would hold the address of that, and differ each time that it is compiled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from trimtab_api.catalogue.wires import VALUES_PER_BLOCK

from trimtab.kernels.loops import Floats, Halves, compiled
from trimtab.kernels.simd import bits_of, float_of

Bytes = NDArray[np.uint8]

#: Added to a float32 below 2^22 and taken away again, it leaves the nearest whole number, the even one of two.
_WHOLE = np.float32(1.5 * 2**23)
_MAGNITUDE, _INFINITY = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
_NAN = np.uint32(0x7FC00000)


@compiled
def write_steps(values: Floats, bits: int, steps: Halves, codes: Bytes) -> None:
    """8 or 4 bits: multiples of each block's step, a bfloat16; it is NaN where the block holds a NaN or an infinity."""
    middle = np.int32((1 << (bits - 1)) - 1)
    codes_of_block = np.empty(VALUES_PER_BLOCK, np.uint8)
    for block in range(steps.size):
        first = block * VALUES_PER_BLOCK
        count = min(values.size - first, VALUES_PER_BLOCK)
        most = np.uint32(0)
        for i in range(count):
            most = max(most, np.uint32(bits_of(values[first + i]) & _MAGNITUDE))
        step = bits_of(float_of(most) / np.float32(middle))
        step = np.uint32(step + np.uint32(0x7FFF) + ((step >> np.uint32(16)) & np.uint32(1)))
        step = step if most < _INFINITY else _NAN
        steps[block] = np.uint16(step >> np.uint32(16))
        exact = float_of(np.uint32(step & np.uint32(0xFFFF0000)))
        codes_of_block[:] = np.uint8(middle)
        if exact > np.float32(0.0):
            for i in range(count):
                multiple = np.int32((values[first + i] / exact + _WHOLE) - _WHOLE)
                codes_of_block[i] = np.uint8(max(-middle, min(middle, multiple)) + middle)
        if bits == 8:
            for i in range(min(codes.size - first, VALUES_PER_BLOCK)):
                codes[first + i] = codes_of_block[i]
        else:
            start = first // 2
            for i in range(min(codes.size - start, VALUES_PER_BLOCK // 2)):
                codes[start + i] = codes_of_block[2 * i] | (codes_of_block[2 * i + 1] << np.uint8(4))


@compiled
def write_signs(values: Floats, means: Floats, codes: Bytes) -> None:
    """2 bits: a sign, and which of two magnitudes, of which ``means`` has the smaller first."""
    codes_of_block = np.zeros(VALUES_PER_BLOCK, np.uint8)
    for block in range(means.size // 2):
        first = block * VALUES_PER_BLOCK
        count = min(values.size - first, VALUES_PER_BLOCK)
        total = 0.0
        for i in range(count):
            total += np.float64(abs(values[first + i]))
        mean = total / count
        codes_of_block[count:] = 0
        num_large, small, large = 0, 0.0, 0.0
        for i in range(count):
            magnitude = np.float64(abs(values[first + i]))
            is_large = int(magnitude > mean)
            num_large += is_large
            small += magnitude * (1 - is_large)
            large += magnitude * is_large
            codes_of_block[i] = np.uint8(2 * is_large + int(values[first + i] < 0))
        means[2 * block] = np.float32(small / max(1, count - num_large))
        means[2 * block + 1] = np.float32(large / max(1, num_large))
        start = first // 4
        for i in range(min(codes.size - start, VALUES_PER_BLOCK // 4)):
            low = codes_of_block[4 * i] | (codes_of_block[4 * i + 1] << 2)
            high = codes_of_block[4 * i + 2] | (codes_of_block[4 * i + 3] << 2)
            codes[start + i] = np.uint8(low | (high << 4))


@compiled
def read_steps(steps: Floats, codes: Bytes, bits: int, target: Floats) -> None:
    """Read what `write_steps` wrote."""
    middle = np.float32((1 << (bits - 1)) - 1)
    for block in range(steps.size):
        first, step = block * VALUES_PER_BLOCK, steps[block]
        count = min(target.size - first, VALUES_PER_BLOCK)
        if bits == 8:
            for i in range(first, first + count):
                target[i] = (np.float32(codes[i]) - middle) * step
        else:
            for i in range(first // 2, (first + count) // 2):
                target[2 * i] = (np.float32(codes[i] & np.uint8(15)) - middle) * step
                target[2 * i + 1] = (np.float32(codes[i] >> np.uint8(4)) - middle) * step
            if count % 2:
                i = first + count - 1
                target[i] = (np.float32(codes[i // 2] & np.uint8(15)) - middle) * step


@compiled
def read_signs(means: Floats, codes: Bytes, target: Floats) -> None:
    """Read what `write_signs` wrote."""
    meant = np.empty(4, np.float32)
    for block in range(means.size // 2):
        first = block * VALUES_PER_BLOCK
        meant[0], meant[2] = means[2 * block], means[2 * block + 1]
        meant[1], meant[3] = -meant[0], -meant[2]
        for i in range(first, min(target.size, first + VALUES_PER_BLOCK)):
            target[i] = meant[(codes[i // 4] >> np.uint8(2 * (i % 4))) & np.uint8(3)]
