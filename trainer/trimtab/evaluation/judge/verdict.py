"""The judge's findings in each cell of its matrix, as a table's figures and as ``judge.json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median, median_high
from typing import Any

from trimtab.evaluation.judge.arrival import Arrival
from trimtab.evaluation.judge.simulation import SimulatedCell
from trimtab.plan.names import ADAPTIVE, DDP_HOOKS
from trimtab.plan.plan import Plan, dense_plan


@dataclass(frozen=True)
class Measured:
    """The times of one cell's real runs."""

    arrivals: dict[str, list[Arrival]] = field(default_factory=dict)
    """Arrival of each run, by plan; empty where none ran."""

    @property
    def medians(self) -> dict[str, float]:
        """Seconds by plan, infinite where the middle run did not reach the target; see `is_bound`."""
        return {name: median(each.seconds for each in times) for name, times in self.arrivals.items()}

    def is_bound(self, *names: str) -> bool:
        """Return whether the best of these plans may have needed longer than its median, as runs were given up."""
        runs = self.arrivals.get(self._first_of(names) or "", [])
        middle = median_high(each.seconds for each in runs) if runs else 0.0
        return any(each.was_given_up and each.seconds <= middle for each in runs)

    @property
    def best(self) -> str | None:
        """The static plan, dense included, that was there first; None where nothing was measured."""
        return self._first_of([name for name in self.arrivals if name not in (ADAPTIVE, *DDP_HOOKS)])

    def over(self, *names: str) -> float | None:
        """Return adaptive's time over the best of these plans' times; None if that was not measured or reached."""
        times, first = self.medians, self._first_of(names)
        if first is None or times[first] == inf:
            return None
        return times.get(ADAPTIVE, inf) / times[first]

    def _first_of(self, names: Sequence[str]) -> str | None:
        """Return the plan whose median is the shortest, of those that ran."""
        times = self.medians
        return min((name for name in names if name in times), key=lambda name: times[name], default=None)

    @property
    def over_best(self) -> float | None:
        """Adaptive's time over that of the best static plan."""
        return self.over(self.best) if self.best else None

    def to_json(self, prefix: str) -> dict[str, Any]:
        """Return plain data; what was not reached is null."""
        return {
            prefix: {name: [each.to_json() for each in times] for name, times in self.arrivals.items()},
            f"{prefix}_given_up": [name for name in self.arrivals if self.is_bound(name)],
            f"{prefix}_over_best_static": _finite(self.over_best),
            f"{prefix}_over_dense": _finite(self.over("dense")),
            f"{prefix}_over_best_hook": _finite(self.over(*DDP_HOOKS)),
        }


@dataclass(frozen=True)
class Cell:
    """One workload on one network."""

    workload: str
    network: str
    simulated: SimulatedCell
    measured: Measured = Measured()
    evened: Measured = Measured()
    """The same, had every step computed equally long (`trimtab.evaluation.judge.arrival`)."""

    @property
    def name(self) -> str:
        """``gpt on far``."""
        return f"{self.workload} on {self.network}"

    @property
    def best_simulated(self) -> str:
        """The static plan that was there first."""
        return next(iter(self.simulated.static))

    @property
    def simulated_over_best(self) -> float:
        """Adaptive's time over that of the best static plan."""
        return self.simulated.adaptive / self.simulated.static[self.best_simulated]

    @property
    def dense(self) -> str:
        """The name of the plan that sends all gradients."""
        return next(name for name in self.simulated.static if Plan.parse(name) == dense_plan(Plan.parse(name).fusion))

    @property
    def simulated_over_dense(self) -> float:
        """Adaptive's time over dense's."""
        return self.simulated.adaptive / self.simulated.static[self.dense]

    def to_json(self) -> dict[str, Any]:
        """Return plain data; what was not reached is null."""
        return {
            "workload": self.workload,
            "network": self.network,
            "simulated": {"adaptive": round(self.simulated.adaptive, 3)}
            | {name: round(seconds, 3) for name, seconds in self.simulated.static.items()},
            "simulated_over_best_static": round(self.simulated_over_best, 4),
            "simulated_over_dense": round(self.simulated_over_dense, 4),
            **self.measured.to_json("measured"),
            **self.evened.to_json("evened"),
        }


def summary(cells: list[Cell]) -> dict[str, float]:
    """Return median and worst of adaptive over the best static plan, over cells."""
    found: dict[str, float] = {}
    for kind, ratios in (
        ("simulated", [cell.simulated_over_best for cell in cells]),
        ("measured", [over for cell in cells if (over := cell.measured.over_best) is not None]),
        ("evened", [over for cell in cells if (over := cell.evened.over_best) is not None]),
    ):
        if ratios:
            found |= {f"{kind}_median": round(median(ratios), 4), f"{kind}_worst": round(max(ratios), 4)}
    return {name: value for name, value in found.items() if value < inf}


def _finite(value: float | None) -> float | None:
    return None if value is None or value == inf else round(value, 4)
