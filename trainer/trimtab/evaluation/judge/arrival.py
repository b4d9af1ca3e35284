"""Times at which real runs were at the target, and when they would have been, had all steps computed equally long.

How long a step computes depends on what else the machine does, and not on the plan: from run to run of one workload it
differs by an eighth and more, between kinds of plans by a few hundredths (table `judge` of benchmarks/results). So of
two runs, or the best of some, the times say as much of the machine as of the plans. All that a step does besides
computing stays as it was measured, at whatever time the network then changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import mean, median

from trimtab.report.summary import summarise
from trimtab.run_files.reader import Run
from trimtab.run_files.schema import Target


@dataclass(frozen=True)
class Arrival:
    """A run's time to the target."""

    seconds: float
    """Infinite where it trained to its end without."""
    was_given_up: bool = False
    """Then it had not arrived after so many seconds, and nobody knows when it would have."""

    def to_json(self) -> float | None:
        """Return the seconds; null where the run never arrived."""
        return None if self.seconds == inf else round(self.seconds, 3)


def arrival_of(run: Run, target: Target) -> Arrival:
    """Return when the run was at the target, or given up."""
    summary = summarise(run, target)
    if summary.seconds_to_target is not None:
        return Arrival(summary.seconds_to_target)
    if summary.state == "deadline":
        return Arrival(summary.wall_seconds, was_given_up=True)
    return Arrival(inf)


def evened(runs: Mapping[str, Sequence[Run]], target: Target) -> dict[str, list[Arrival]]:
    """Return when each run was at the target, by plan, with as much computing a step as the median run.

    Plans are left out if a run of theirs does not tell what its steps compute, as those of DDP's hooks once did not.
    """
    telling = {name: of_plan for name, of_plan in runs.items() if all(map(_tells, of_plan))}
    usual = median([mean(_computing(run)) for of_plan in telling.values() for run in of_plan] or [0.0])
    return {name: [_evened(run, target, usual) for run in of_plan] for name, of_plan in telling.items()}


def _tells(run: Run) -> bool:
    """Return whether the run knows computing from waiting: then some of its steps waited."""
    return any(step.exposed_seconds > 0 for step in run.training_steps)


def _computing(run: Run) -> list[float]:
    return [step.compute_seconds for step in run.training_steps]


def _evened(run: Run, target: Target, computing: float) -> Arrival:
    arrival = arrival_of(run, target)
    if arrival.seconds == inf:
        return arrival
    more = sum(computing - step.compute_seconds for step in run.training_steps if step.time <= arrival.seconds)
    return replace(arrival, seconds=arrival.seconds + more)
