"""SAFusion: selection in each tensor, then fusion, without waits of the link or short buffers at the end.

Sections 3.2 and 3.3. All ranks use the cuts of rank 0, so that their buffers hold the same tensors however much each
selects: the alignment between workers. Buffer sizes within a worker follow equations 1 to 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil

from trimtab.plan.fusion.base import BufferCosts
from trimtab.plan.fusion.run_times import RunTimes
from trimtab.plan.profile import Profile


def safusion(
    profile: Profile | None,
    tensor_sizes: Sequence[int],
    costs: BufferCosts,
    *,
    workers: str,
    buffers: int,
    tail: str,
) -> tuple[int, ...]:
    """Plan SAFusion's buffers.

    Args:
        profile: Measured times of a step; None before steps were profiled.
        tensor_sizes: Elements of each tensor, in backward order.
        costs: Seconds of compressing and exchanging a buffer.
        workers: ``inter`` puts the same number of tensors into each buffer (3.2); ``both`` sizes buffers by times
            (3.3).
        buffers: Number of buffers under ``inter``.
        tail: ``paper`` merges the buffer at which equation 3 begins to hold and all that follow. On a slow network that
        buffer may hold so much that the link waits for it longer than a startup takes. ``timeline`` leaves it by itself
        if a step then ends sooner (docs/adr/0013-planned-schedules-and-fusion.md).
    """
    times = RunTimes(profile, tensor_sizes, costs)
    if workers == "inter":
        return times.cuts(range(0, len(times), ceil(len(times) / buffers)))
    begins = adaptive_begins(times)
    merged = without_tail(times, begins)
    if tail == "paper":
        return times.cuts(merged)
    return times.cuts(min((merged, begins[: len(merged) + 1]), key=times.step_seconds))


def adaptive_begins(times: RunTimes) -> list[int]:
    """Return the first tensor of each buffer by equations 1 and 2, before a long tail is merged."""
    begins, end = [0], first_buffer(times)
    while end < len(times):
        exchange = times.exchange(begins[-1], end)
        begins.append(end)
        end += 1
        while end < len(times) and exchange >= filling(times, begins[-1], end + 1):
            end += 1
    return begins


def first_buffer(times: RunTimes) -> int:
    """Return the number of tensors in the first buffer (equation 2).

    These are the fewest tensors for which computing them and one exchange is shorter than an exchange for each; one if
    that holds for no number of them.
    """
    one_by_one = accumulate(times.exchange(tensor, tensor + 1) for tensor in range(len(times)))
    for last, exchanges in enumerate(one_by_one, 1):
        if times.backward(0, last) + times.exchange(0, last) < exchanges:
            return last
    return 1


def without_tail(times: RunTimes, begins: Sequence[int]) -> list[int]:
    """Return the first tensor of each buffer, with the buffers that no longer overlap anything merged (equation 3).

    Merged are all buffers from the first one on by whose end the exchanges have taken longer than filling all but the
    first.
    """
    runs = list(pairwise([*begins, len(times)]))
    fillings = sum(filling(times, *run) for run in runs[1:])
    for number, exchanges in enumerate(accumulate(times.exchange(*run) for run in runs), 1):
        if exchanges > fillings:
            return list(begins[:number])
    return list(begins)


def filling(times: RunTimes, first: int, last: int) -> float:
    """Return the seconds of a buffer's backward pass and compression: the paper's sparse tensor fusion time."""
    return times.backward(first, last) + times.compress(first, last)
