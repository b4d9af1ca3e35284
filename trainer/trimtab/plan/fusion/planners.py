"""The fusion planners that ship, apart from SAFusion (`trimtab.papers.safusion`).

* Fixed rules: a size in bytes (DistributedDataParallel 25 MB, Horovod 64 MB), one buffer, one a tensor, equal parts,
  cuts that somebody names.
* MG-WFBP (Shi, Chu, Li: INFOCOM 2019) and OMGS-SGD (Shi et al.: INFOCOM 2020) merge gradients as they come.
* Cupcake (Wang, Wu, Xu, Ng: MLSys 2023) spreads the cost of compressing.
* ``autotuned`` tries sizes in the timeline; ``optimal`` is what the others are measured against.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from trimtab_api.catalogue import BYTES_PER_ELEMENT

from trimtab.plan.fusion.base import BufferCosts
from trimtab.plan.fusion.best_cuts import best_begins
from trimtab.plan.fusion.run_times import RunTimes
from trimtab.plan.profile import Profile

#: Bytes of the smallest buffer that `autotuned_size` tries; each size is twice the one before.
_SMALLEST = 1 << 16


def fixed_size(
    profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts, *, bytes: float
) -> tuple[int, ...]:
    """Cut where the next tensor would take a buffer over ``bytes``.

    A tensor larger than a buffer has one of its own.
    """
    cuts, end = [0], 0
    for size in tensor_sizes:
        filled = end - cuts[-1]
        if filled and (filled + size) * BYTES_PER_ELEMENT > bytes:
            cuts.append(end)
        end += size
    return tuple(cuts)


def single_buffer(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """Plan one buffer for all tensors."""
    return (0,)


def buffer_per_tensor(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """Plan a buffer for each tensor, as in wait-free backpropagation (Poseidon, section 3.1).

    If a model has more tensors than there may be buffers, each buffer gets as few consecutive ones as will do.
    """
    return RunTimes(profile, tensor_sizes, costs).offsets[:-1]


def equal_parts(
    profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts, *, buffers: int
) -> tuple[int, ...]:
    """Cut the gradient into so many buffers, or one an element if it has fewer."""
    num_elements = sum(tensor_sizes)
    return tuple(sorted({num_elements * part // buffers for part in range(buffers)}))


def cut_at(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts, *, at: str) -> tuple[int, ...]:
    """Cut at the element offsets in ``at``, which are joined by +."""
    return (0, *map(int, at.split("+")))


def merged_begins(times: RunTimes, *, weighs_compression: bool) -> list[int]:
    """Return the first tensor of each buffer (MG-WFBP, Algorithm 1; OMGS-SGD, with compression in both).

    If tensor t joins the open buffer, that buffer is sent later, by its wait for t, and one exchange is saved. Tensor t
    joins if the saving is larger.
    """
    begins = [0]
    compressed = sent = 0.0
    """When the lanes are done with all buffers but the open one."""

    def filled(first: int, last: int) -> float:
        if not weighs_compression:
            return times.ready[last - 1]
        return max(compressed, times.ready[last - 1]) + times.compress(first, last)

    for tensor in range(1, len(times)):
        first = begins[-1]
        now, later = max(sent, filled(first, tensor)), max(sent, filled(first, tensor + 1))
        saved = times.exchange(first, tensor) + times.exchange(tensor, tensor + 1) - times.exchange(first, tensor + 1)
        if later - now < saved:
            continue
        begins.append(tensor)
        compressed, sent = filled(first, tensor), now + times.exchange(first, tensor)
    return begins


def merged_gradients(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """Merge a gradient with the next if it comes before the shared startup has been spent in waiting (MG-WFBP).

    Made for exchanges without compression: the time of compressing is not weighed.
    """
    times = RunTimes(profile, tensor_sizes, costs)
    return times.cuts(merged_begins(times, weighs_compression=False))


def merged_sparsification(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """Merge a gradient with the next if the exchange saved is longer than the buffer is delayed (OMGS-SGD).

    The paper sparsifies between two layers' backward passes; here, as in the engine, beside them.
    """
    times = RunTimes(profile, tensor_sizes, costs)
    return times.cuts(merged_begins(times, weighs_compression=True))


def cupcake(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """Cut so that a step ends soonest if compressing a buffer halts the backward pass (Cupcake).

    The paper's objective: compression shares the device with backward, and the cost of each call is to be spread over
    several tensors. The search is ours: dynamic programming, which is exact for its model.
    """
    times = RunTimes(profile, tensor_sizes, costs)
    return times.cuts(best_begins(times, compression_halts_backward=True))


def autotuned_size(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """Cut into buffers of the size, doubled from 64 KiB on, with which a step ends soonest in the timeline.

    Among equals the larger size is taken. Horovod tries sizes on real steps, which takes minutes; here the timeline is
    asked.
    """
    times = RunTimes(profile, tensor_sizes, costs)
    sizes = [end - begin for begin, end in pairwise(times.offsets)]
    index = {offset: tensor for tensor, offset in enumerate(times.offsets)}
    tried: list[list[int]] = []
    num_bytes = _SMALLEST
    while not tried or len(tried[-1]) > 1:
        tried.append([index[cut] for cut in fixed_size(profile, sizes, costs, bytes=num_bytes)])
        num_bytes *= 2
    return times.cuts(min(reversed(tried), key=times.step_seconds))


def optimal(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """Cut so that a step, sent wait-free, ends soonest in the timeline.

    It takes about a second for 500 tensors, several times that of the other planners.
    """
    times = RunTimes(profile, tensor_sizes, costs)
    return times.cuts(best_begins(times))
