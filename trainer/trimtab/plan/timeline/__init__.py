"""The timeline of a step: one pure model, which fusion planners, schedules and the controller share."""

from __future__ import annotations

from trimtab.plan.timeline.readiness import Readiness, assumed_compute_seconds
from trimtab.plan.timeline.simulate import (
    BufferTimes,
    Span,
    Start,
    Timeline,
    Transfer,
    iteration_seconds,
    latent,
    mean_iteration_seconds,
    simulate,
    transfers_of,
)

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
