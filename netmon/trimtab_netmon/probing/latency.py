"""Latency from round trips: the shortest of those that did not wait behind the job's own traffic.

Pure: samples and times go in, measurements come out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

#: Seconds of samples that a measurement rests on, when they are quiet enough.
WINDOW = 1.0
#: Quiet samples that a measurement needs; while the link is busy the window reaches further back to find them.
FEWEST_QUIET = 4
#: Seconds of latency that a busy machine may add to a few echoes in a row.
SLIGHT_RISE = 1e-3
#: Quiet samples that must agree on so slight a rise.
FEWEST_QUIET_OF_SLIGHT_RISE = 12
#: A latency is suspect when even the shortest recent echo takes more than this many times as long.
SUSPECT_ABOVE = 1.1
#: Seconds that the window reaches back at most.
LONGEST_WINDOW = 10.0


@dataclass(frozen=True)
class RoundTrip:
    """One echo."""

    at: float
    """Monotonic seconds of its return."""
    seconds: float
    """Round trip, the responder's own time taken out."""
    quiet: bool
    """Neither host's interface was busy around it."""


@dataclass(frozen=True)
class Latency:
    """The latency of one link by its recent echoes; seconds, one way."""

    latency: float
    jitter: float
    """Half of (90th - 10th percentile) of quiet round trips."""
    queueing: float
    """Median extra delay of the last second's echoes, quiet or not."""
    age: float
    """Seconds since an echo last showed this latency: a quiet one, or any that took no longer."""


class LatencyWindow:
    """The recent echoes of one link."""

    def __init__(self) -> None:
        self._samples: deque[RoundTrip] = deque()
        self._latency = 0.0
        self._shown_at = float("-inf")

    def add(self, sample: RoundTrip) -> None:
        """Take in one echo."""
        self._samples.append(sample)
        while self._samples[0].at < sample.at - LONGEST_WINDOW:
            self._samples.popleft()

    def is_suspect(self) -> bool:
        """Return whether recent echoes took longer than the latency says.

        The reason is a queue, or a change that quiet echoes must show.
        """
        if self._latency == 0:
            return True
        newest = self._samples[-1].at
        shortest = min(sample.seconds for sample in self._samples if sample.at > newest - WINDOW) / 2
        return shortest > SUSPECT_ABOVE * self._latency

    def estimate(self) -> Latency | None:
        """Return the measurements now; None before the first few echoes.

        A rise needs `FEWEST_QUIET` quiet echoes, none of which met the old latency, and a slight one more of them. A
        fall needs a single echo of any kind: nothing arrives faster than the link allows. Where a link never pauses
        nobody can tell a rise from a queue: the latency stays, and grows old.
        """
        if len(self._samples) < FEWEST_QUIET:
            return None
        newest = self._samples[-1].at
        recent = [sample.seconds for sample in self._samples if sample.at > newest - WINDOW]
        all_quiet = [sample.seconds for sample in self._samples if sample.quiet]
        quiet = [sample.seconds for sample in self._samples if sample.quiet and sample.at > newest - WINDOW]
        if len(quiet) < FEWEST_QUIET:
            quiet = all_quiet[-FEWEST_QUIET:]
        if len(quiet) >= FEWEST_QUIET:
            latency = min(quiet) / 2
            if self._latency < latency < self._latency + SLIGHT_RISE:
                # Some of these echoes may be from before an earlier rise: they must not lower the latency.
                agreed = min(all_quiet[-FEWEST_QUIET_OF_SLIGHT_RISE:]) / 2
                latency = max(self._latency, min(latency, agreed))
            self._latency = latency
        if self._latency == 0:
            self._latency = min(recent) / 2
        self._latency = min(self._latency, min(recent) / 2)
        shown = (sample.at for sample in reversed(self._samples) if sample.quiet or self._shows(sample))
        self._shown_at = max(self._shown_at, next(shown, float("-inf")))
        return Latency(
            latency=self._latency,
            jitter=(percentile(quiet, 0.9) - percentile(quiet, 0.1)) / 2 if len(quiet) > 1 else 0.0,
            queueing=max(0.0, percentile(recent, 0.5) / 2 - self._latency),
            age=newest - self._shown_at,
        )

    def _shows(self, sample: RoundTrip) -> bool:
        """Return whether an echo took no longer than the latency says, up to what a busy machine adds."""
        return sample.seconds / 2 <= max(SUSPECT_ABOVE * self._latency, self._latency + SLIGHT_RISE)


def percentile(values: list[float], share: float) -> float:
    """Return the value below which ``share`` of the values lie, interpolated."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
