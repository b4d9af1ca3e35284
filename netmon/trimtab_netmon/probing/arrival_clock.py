"""Arrival times of datagrams, by a clock that nobody sets.

The kernel stamps datagrams by the wall clock, which may be set at any time: if it is set back by 10 ms between a
request and its answer, a round trip of 10 ms seems to take none. So a stamp is turned into monotonic time at once, by
the present difference of the two clocks, which is read once for all datagrams that were read together. If the
difference has just jumped, their stamps may be from before the jump, and do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: Nanoseconds by which the difference of the two clocks may seem to move though neither was set: they are read one
#: after the other, and the process may be interrupted in between.
SAME_CLOCK = 100_000
#: Most times that both clocks are read to get a reading without an interruption.
_READINGS = 5


class ArrivalClock:
    """A converter of the kernel's stamps to monotonic nanoseconds."""

    def __init__(
        self, monotonic: Callable[[], int] = time.monotonic_ns, wall: Callable[[], int] = time.time_ns
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._difference = self._read()
        self._was_set = False

    def refresh(self) -> None:
        """Read both clocks, after datagrams have been read and before their stamps are converted."""
        before, self._difference = self._difference, self._read()
        self._was_set = abs(self._difference - before) > SAME_CLOCK

    def monotonic(self, stamp: int) -> int | None:
        """Return the monotonic time of a stamp [nanoseconds since the epoch]; None if the wall clock was set lately."""
        arrived = stamp - self._difference
        return None if self._was_set or arrived > self._monotonic() + SAME_CLOCK else arrived

    def _read(self) -> int:
        """Return wall clock minus monotonic clock, by the reading that took least time."""
        readings = []
        for _ in range(_READINGS):
            before, wall, after = self._monotonic(), self._wall(), self._monotonic()
            readings.append((after - before, wall - (before + after) // 2))
            if after - before < SAME_CLOCK:
                break
        return min(readings)[1]
