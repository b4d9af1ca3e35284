"""Merging as gradients come: a tensor joins the buffer before it where that saves more than it puts off."""

from __future__ import annotations

from trimtab.fusion.run_times import RunTimes


def merged_begins(times: RunTimes, *, weighs_compression: bool) -> list[int]:
    """The first tensor of each buffer.

    Where tensor t came to the open buffer, that buffer would be sent later, by what it waits for t; one exchange would
    be saved. It comes where the second is more (MG-WFBP, Algorithm 1; OMGS-SGD, with compression in both).
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
