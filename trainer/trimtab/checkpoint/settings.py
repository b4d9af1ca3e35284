"""Where a job's checkpoints are, and how often they are written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckpointSettings:
    """Settings of one job; the defaults are those of ``spec.checkpoint``."""

    where: str
    """A directory that every host sees under this path, or a URL that fsspec knows."""
    job: str
    """Name of the job, for the manifest."""
    seconds: float = 600.0
    """Seconds between two checkpoints."""
    steps: int | None = None
    """Steps between two; None: the time alone counts."""
    keep: int = 2
    """Whole checkpoints that stay."""
    on_termination: bool = True
    """True if SIGTERM has the job write one more before this process ends."""
