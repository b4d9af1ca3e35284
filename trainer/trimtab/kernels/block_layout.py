"""The parts of a message that holds values in 8, 4 or 2 bits: the scales of all blocks, and then the codes."""

from __future__ import annotations

from trimtab_api.catalogue.wires import VALUES_PER_BLOCK


def num_blocks(count: int) -> int:
    """Return the number of blocks of so many values."""
    return -(-count // VALUES_PER_BLOCK)


def num_scales(count: int, bits: int) -> int:
    """Return the number of bfloat16 scales: a step for each block, or in 2 bits two magnitudes."""
    return (2 if bits == 2 else 1) * num_blocks(count)


def num_bytes(count: int, bits: int) -> int:
    """Return the bytes of so many values: a multiple of 2."""
    return 2 * (num_scales(count, bits) + -(-count * bits // 16))
