"""What a step takes on the clock: one pure model, which fusion planners, schedules and the controller share."""

from __future__ import annotations

from trimtab.timeline.readiness import Readiness, assumed_compute_seconds
from trimtab.timeline.simulate import BufferTimes, Lanes, Span, Start, Timeline, Transfer, iteration_seconds, simulate

__all__ = [
    "BufferTimes",
    "Lanes",
    "Readiness",
    "Span",
    "Start",
    "Timeline",
    "Transfer",
    "assumed_compute_seconds",
    "iteration_seconds",
    "simulate",
]
