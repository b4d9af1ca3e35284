"""The time at which one real run was at the target."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from trimtab.report.summary import Target, summarise
from trimtab.run_files.reader import Run


@dataclass(frozen=True)
class Arrival:
    """A run's time to the target."""

    seconds: float
    """Infinite where it trained to its end without."""
    was_given_up: bool = False
    """Then it had not arrived after so many seconds, and nobody knows when it would have."""

    def to_json(self) -> float | None:
        """Its seconds; null where it never arrived."""
        return None if self.seconds == inf else round(self.seconds, 3)


def arrival_of(run: Run, target: Target) -> Arrival:
    """Return when the run was at the target, or given up."""
    summary = summarise(run, target)
    if summary.seconds_to_target is not None:
        return Arrival(summary.seconds_to_target)
    if summary.state == "deadline":
        return Arrival(summary.wall_seconds, was_given_up=True)
    return Arrival(inf)
