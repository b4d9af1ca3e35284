"""The parts of a message that holds values in 8, 4 or 2 bits: the scales of all blocks, and then the codes."""

from __future__ import annotations

from trimtab_api.catalogue.wires import VALUES_PER_BLOCK


def num_blocks(count: int) -> int:
    """Of so many values."""
    return -(-count // VALUES_PER_BLOCK)


def num_scales(count: int, bits: int) -> int:
    """bfloat16 numbers that so many values are read by: a step for each block, or in 2 bits two magnitudes."""
    return (2 if bits == 2 else 1) * num_blocks(count)


def num_bytes(count: int, bits: int) -> int:
    """What so many values take: a multiple of 2."""
    return 2 * (num_scales(count, bits) + -(-count * bits // 16))
