"""Buffers of a fixed size, the rule of DistributedDataParallel (25 MB) and Horovod (64 MB)."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab_api.catalogue.costs import BYTES_PER_ELEMENT

from trimtab.plan import FusionPlan, Selection


def fixed_size(tensor_sizes: Sequence[int], buffer_bytes: float | None, selection: Selection = "behind") -> FusionPlan:
    """Cut where the next tensor would take a buffer over ``buffer_bytes``; None: one buffer.

    ``tensor_sizes`` are numbers of elements in backward order. A tensor larger than a buffer has one of its own.
    """
    cuts, end = [0], 0
    for size in tensor_sizes:
        filled = end - cuts[-1]
        if buffer_bytes is not None and filled and (filled + size) * BYTES_PER_ELEMENT > buffer_bytes:
            cuts.append(end)
        end += size
    return FusionPlan(tuple(cuts), selection)
