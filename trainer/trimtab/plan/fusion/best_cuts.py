"""The best cuts between tensors, by dynamic programming over the state of the lanes.

Of all ways to send the tensors before a cut, only those matter that no other beats in both: until when the compressing
lane is taken, and until when the link is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trimtab.plan.fusion.run_times import RunTimes

Floats = NDArray[np.float64]
#: No way before.
_NONE = -1


def best_begins(times: RunTimes, *, compression_halts_backward: bool = False) -> list[int]:
    """Return the first tensor of each buffer with which a step, sent wait-free, ends soonest.

    Among equals the fewest buffers are taken.

    Args:
        times: Times of runs of tensors.
        compression_halts_backward: True if both share a device; else compressing has a lane of its own.
    """
    ways = _Ways(len(times))
    for first in range(len(times)):
        buffers = _Buffers(times, first, compression_halts_backward)
        for compressed, sent, before in ways.undominated(first, buffers) if first else [(buffers.begin, 0.0, _NONE)]:
            done = buffers.compressed(compressed)
            ways.add(first, before, done, np.maximum(sent, done) + buffers.exchange)
    return ways.begins(ways.soonest())


class _Buffers:
    """The buffers that may begin at one tensor, by the tensor that is first after them."""

    def __init__(self, times: RunTimes, first: int, halts_backward: bool) -> None:
        lasts = range(first + 1, len(times) + 1)
        self.begin = times.ready[first - 1] if first else times.backward_begin
        """Time at which the backward pass comes to the first tensor."""
        self._halts_backward = halts_backward
        self._ready: Floats = np.array(times.ready[first:])
        self._backward: Floats = self._ready - self.begin
        self._compress: Floats = np.array([times.compress(first, last) for last in lasts])
        self.exchange: Floats = np.array([times.exchange(first, last) for last in lasts])

    def compressed(self, busy: float) -> Floats:
        """Return when each buffer is compressed, if the lane is free at ``busy``."""
        if self._halts_backward:
            return busy + self._backward + self._compress
        return np.maximum(busy, self._ready) + self._compress

    def states(self, compressed: Floats, sent: Floats) -> tuple[Floats, Floats]:
        """Return until when the lanes are taken by earlier buffers, as far as it matters to any of these."""
        if self._halts_backward:
            filled = compressed + self._backward[0]
        else:
            compressed = filled = np.maximum(compressed, self._ready[0])
        return compressed, np.maximum(sent, filled + self._compress.min())


class _Ways:
    """Ways to send all tensors before some cut, each by the first tensor of its last buffer and the way before that."""

    def __init__(self, num_tensors: int) -> None:
        self._compressed = np.full((num_tensors + 1, 4 * num_tensors + 4), np.inf)
        """By the tensor that is first after the way's last buffer, and by way: until when the lane is taken."""
        self._sent = self._compressed.copy()
        self._num_buffers: list[int] = []
        self._came_from: list[tuple[int, int]] = []

    def add(self, first: int, before: int, compressed: Floats, sent: Floats) -> None:
        """Add one way for each end that its last buffer, which begins at ``first``, may have."""
        way = len(self._came_from)
        if way == self._compressed.shape[1]:
            room = np.full(self._compressed.shape, np.inf)
            self._compressed = np.concatenate([self._compressed, room], axis=1)
            self._sent = np.concatenate([self._sent, room], axis=1)
        self._compressed[first + 1 :, way] = compressed
        self._sent[first + 1 :, way] = sent
        self._came_from.append((first, before))
        self._num_buffers.append(1 if before == _NONE else self._num_buffers[before] + 1)

    def undominated(self, end: int, buffers: _Buffers) -> list[tuple[float, float, int]]:
        """Return the ways up to ``end`` whose state, as far as the next ``buffers`` can tell, no other beats.

        Returns:
            End of compressing, end of sending, and number of each way.
        """
        lanes = (lane[end, : len(self._came_from)] for lane in (self._compressed, self._sent))
        compressed, sent = buffers.states(*lanes)
        kept: list[tuple[float, float, int]] = []
        soonest = np.inf
        for way in np.lexsort((np.array(self._num_buffers), sent, compressed)):
            if sent[way] < soonest:
                soonest = float(sent[way])
                kept.append((float(compressed[way]), soonest, int(way)))
        return kept

    def soonest(self) -> int:
        """Return the way by which all tensors are sent soonest; among equals, that with the fewest buffers."""
        sent = self._sent[-1, : len(self._came_from)]
        return int(np.lexsort((np.array(self._num_buffers), sent))[0])

    def begins(self, way: int) -> list[int]:
        """Return the first tensor of each buffer of a way."""
        begins = []
        while way != _NONE:
            first, way = self._came_from[way]
            begins.append(first)
        return begins[::-1]
