"""Buffers of a fixed size, the rule of DistributedDataParallel (25 MB) and Horovod (64 MB)."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab_api.catalogue import BYTES_PER_ELEMENT

from trimtab.fusion.base import BufferCosts
from trimtab.fusion.run_times import RunTimes
from trimtab.plan.profile import Profile


def fixed_size(
    profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts, *, bytes: float
) -> tuple[int, ...]:
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


def single_buffer(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """One buffer for all."""
    return (0,)


def buffer_per_tensor(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """No fusion, as in wait-free backpropagation (Poseidon, section 3.1).

    Of a model with more tensors than there may be buffers: as few consecutive ones in each as will do.
    """
    return RunTimes(profile, tensor_sizes, costs).offsets[:-1]
