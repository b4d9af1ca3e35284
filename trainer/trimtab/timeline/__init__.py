"""What a step takes on the clock: one pure model, which fusion planners, schedules and the controller share."""

from __future__ import annotations

from trimtab.timeline.readiness import Readiness, assumed_compute_seconds
from trimtab.timeline.simulate import (
    BufferTimes,
    Span,
    Timeline,
    iteration_seconds,
    latent,
    mean_iteration_seconds,
    simulate,
)
from trimtab.timeline.transfers import Start, Transfer, transfers_of

__all__ = [
    "BufferTimes",
    "Readiness",
    "Span",
    "Start",
    "Timeline",
    "Transfer",
    "assumed_compute_seconds",
    "iteration_seconds",
    "latent",
    "mean_iteration_seconds",
    "simulate",
    "transfers_of",
]
