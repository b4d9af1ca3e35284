"""Buffers of a fixed size, the rule of DistributedDataParallel (25 MB) and Horovod (64 MB)."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab_api.catalogue import BYTES_PER_ELEMENT


def fixed_size(tensor_sizes: Sequence[int], *, bytes: float) -> tuple[int, ...]:
    """Cut where the next tensor would take a buffer over ``bytes``.

    ``tensor_sizes`` are numbers of elements in backward order. A tensor larger than a buffer has one of its own.
    """
    cuts, end = [0], 0
    for size in tensor_sizes:
        filled = end - cuts[-1]
        if filled and (filled + size) * BYTES_PER_ELEMENT > bytes:
            cuts.append(end)
        end += size
    return tuple(cuts)


def single_buffer(tensor_sizes: Sequence[int]) -> tuple[int, ...]:
    """One buffer for all."""
    return (0,)
