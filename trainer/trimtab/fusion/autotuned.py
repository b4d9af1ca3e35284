"""A fixed buffer size that suits the model and the network, as Horovod's autotuning seeks by trying sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from trimtab.fusion.base import BufferCosts
from trimtab.fusion.fixed import fixed_size
from trimtab.fusion.run_times import RunTimes
from trimtab.plan.profile import Profile

#: Bytes of the smallest buffer that is tried; each size is twice the one before.
_SMALLEST = 1 << 16


def autotuned_size(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """Buffers of the size, doubled from 64 KiB on, with which a step ends soonest in the timeline.

    Of equals it is the larger. Horovod tries sizes on real steps, which takes minutes; here the timeline is asked.
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
