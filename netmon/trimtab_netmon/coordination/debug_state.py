"""A view of the coordinator's plans, for tests and for people who ask why a link is not tested."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DebugState:
    """A copy of the coordinator's state at one moment."""

    is_sweep_wanted: bool
    """True if a sweep is under way, or about to be."""
    num_links_tested: int
    """Links that a test has succeeded on."""
    interval_seconds: float
    """Seconds between two periodic probes, at present."""
    missing_from_budget: tuple[tuple[float, float], ...]
    """Seconds and bytes, by host, that its budget lacked after the last test there."""
