"""Held-out losses by step that real runs of a workload recorded: the simulator's truth about progress.

A file is what `trimtab judge --record` makes of runs on loopback. How many of dense's steps a step is worth under a
plan is read off these curves, stage by stage of the training; between recorded plans it is interpolated in the
logarithms of ratio and of local steps, and below the least recorded ratio its last slope goes on.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import accumulate, pairwise
from math import exp, inf, log
from pathlib import Path
from statistics import median
from typing import Any

from trimtab_api.catalogue import Cost
from trimtab_api.errors import UserError

from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.reader import Run

Losses = tuple[tuple[int, float], ...]
"""(step, held-out loss), in order."""

#: Parts into which a training is cut, of as many of dense's steps each.
NUM_STAGES = 4
#: Share of a stage that a run must finish for its losses to be read off it.
_SHARE_THAT_TELLS = 0.1
RATIOS = (0.1, 0.01, 0.001)
LOCAL_STEPS = (1, 4, 16)
#: Beside dense; other ratios of updates are read off the slope between the two.
RATIOS_OF_UPDATES = (0.01,)
PLANS = (
    "dense",
    *(f"{ratio:g}/all-gather" for ratio in RATIOS),
    *(
        f"{sent}/source=update:steps={local_steps}"
        for local_steps in LOCAL_STEPS
        for sent in ("dense-ring", *(f"{ratio:g}/all-gather" for ratio in RATIOS_OF_UPDATES))
    ),
)
"""The plans that are recorded of each workload."""
_FUSION = FusionPlan(planner="single")
_MILLION = 1_000_000


@dataclass(frozen=True)
class Recorded:
    """One workload's curves."""

    target_loss: float
    num_elements: int
    compute_seconds: float
    """Seconds of a step, on the machine and at the load where it was recorded."""
    curves: dict[Plan, Losses]

    @property
    def dense_steps(self) -> float:
        """To the target."""
        return sum(self._dense_lengths)

    @property
    def most_local_steps(self) -> int:
        """The largest H of which there is a curve; 0: of no updates."""
        return max(self._rows)

    def knows(self, plan: Plan) -> bool:
        """Return whether a plan's progress was recorded, or lies between what was."""
        is_like_recorded = plan.is_dense or plan.collective == "all-gather"
        return is_like_recorded and plan.wire == self._dense_plan.wire and plan.local_steps <= self.most_local_steps

    def pace(self, plan: Plan, progress: float) -> float:
        """Return the dense steps that a step is worth under a known plan, after ``progress`` of dense's steps."""
        stage = min(bisect_right(self._levels_at, progress), NUM_STAGES) - 1
        if not plan.local_steps:
            return self._of(self._rows[0], plan.ratio, stage)
        by_steps = {count: self._of(self._rows[count], plan.ratio, stage) for count in self._rows if count}
        return _interpolated(by_steps, plan.local_steps)

    def loss(self, progress: float) -> float:
        """Return dense's held-out loss after so many of its steps, least so far; after the last recorded, that."""
        best = _running_least(self._dense)
        (step, loss), (until, then) = next((ends for ends in pairwise(best) if progress <= ends[1][0]), (best[-1],) * 2)
        share = (progress - step) / (until - step) if until > step else 1.0
        return loss + min(1.0, max(0.0, share)) * (then - loss)

    def _of(self, row: dict[float, Plan], ratio: float, stage: int) -> float:
        return _interpolated({known: self._paces[plan][stage] for known, plan in row.items()}, ratio)

    @cached_property
    def _dense_plan(self) -> Plan:
        return next(plan for plan in self.curves if plan.is_dense and not plan.local_steps)

    @property
    def _dense(self) -> Losses:
        return self.curves[self._dense_plan]

    @cached_property
    def _rows(self) -> dict[int, dict[float, Plan]]:
        """Recorded plans by local steps (0: gradients) and ratio."""
        rows: dict[int, dict[float, Plan]] = {}
        for plan in self.curves:
            rows.setdefault(plan.local_steps, {})[plan.ratio] = plan
        return rows

    @cached_property
    def _levels(self) -> list[float]:
        """The loss that dense has at the end of each stage, the target at the last's."""
        best = _running_least(self._dense)
        last = next((step for step, loss in best if loss <= self.target_loss), best[-1][0])
        at = [next(loss for step, loss in best if step >= last * share / NUM_STAGES) for share in range(1, NUM_STAGES)]
        return [*at, self.target_loss]

    @cached_property
    def _levels_at(self) -> list[float]:
        return [0.0, *accumulate(self._dense_lengths[:-1])]

    def _ends(self, losses: Losses) -> list[float]:
        """Return the step at which each stage ended; what the run did not finish goes on as slowly as it had gone."""
        best, dense = _running_least(losses), self._dense_lengths
        ends: list[float] = []
        above, slowness = best[0][1], 1.0
        for level, length in zip(self._levels, dense, strict=True):
            began = ends[-1] if ends else 0.0
            reached = next((float(step) for step, loss in best if loss <= level), inf)
            if reached == inf:
                share = (above - best[-1][1]) / (above - level) if best[-1][0] > began else 0.0
                if share > _SHARE_THAT_TELLS:
                    slowness = max(slowness, (best[-1][0] - began) / share / length)
                reached = began + slowness * length
            else:
                slowness = max(1.0, (reached - began) / length)
            ends.append(max(reached, began + length / 2))  # evaluations are some steps apart
            above = level
        return ends

    @cached_property
    def _dense_lengths(self) -> list[float]:
        """Dense's steps in each stage."""
        best = _running_least(self._dense)
        ends = [next(step for step, loss in best if loss <= level) for level in self._levels]
        return [float(after - before) for before, after in pairwise([0, *ends])]

    @cached_property
    def _paces(self) -> dict[Plan, list[float]]:
        return {
            plan: [
                length / (after - before)
                for length, (before, after) in zip(
                    self._dense_lengths, pairwise([0.0, *self._ends(losses)]), strict=True
                )
            ]
            for plan, losses in self.curves.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain data, which `from_json` reads."""
        return {
            "target_loss": self.target_loss,
            "num_elements": self.num_elements,
            "compute_seconds": round(self.compute_seconds, 4),
            "curves": {plan.name: [[step, round(loss, 4)] for step, loss in c] for plan, c in self.curves.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Recorded:
        """Parse a file's contents."""
        curves = {
            Plan.parse(name): tuple((int(step), float(loss)) for step, loss in losses)
            for name, losses in data["curves"].items()
        }
        return cls(data["target_loss"], data["num_elements"], data["compute_seconds"], curves)


def load(workload: str, own: Path) -> Recorded:
    """Load a workload's record: one made here, ``own``, or the one that ships. Raise `UserError` without either."""
    shipped = files("trimtab.evaluation.judge").joinpath("curves", f"{workload}.json")
    file = own if own.exists() else shipped
    if not file.is_file():
        raise UserError("no run of it was recorded, so nothing can be simulated; add --record", field=workload)
    return Recorded.from_json(json.loads(file.read_text(encoding="utf-8")))


def _running_least(losses: Losses) -> Losses:
    least, best = inf, []
    for step, loss in losses:
        least = min(least, loss)
        best.append((step, least))
    return tuple(best)


def _interpolated(known: dict[float, float] | dict[int, float], where: float) -> float:
    """Interpolate in the logarithms of both; beyond the ends the last slope goes on."""
    if len(known) == 1:
        return next(iter(known.values()))
    (low, at_low), (high, at_high) = next(
        (pair for pair in pairwise(sorted(known.items())) if where <= pair[1][0]), sorted(known.items())[-2:]
    )
    return exp(log(at_low) + log(where / low) / log(high / low) * log(at_high / at_low))


def recorded_of(runs: Sequence[Run], target_loss: float) -> Recorded:
    """Return the curves of all runs; the first is dense's, whose bytes tell how large the model is."""
    dense = runs[0]
    num_ranks = dense.job.spec.num_ranks
    sent = median(step.num_bytes for step in dense.training_steps)
    one_element = sum(Plan.parse("dense", _FUSION).buffer_costs(_MILLION, num_ranks), Cost(0, 0)).bytes / _MILLION
    return Recorded(
        target_loss=target_loss,
        num_elements=round(sent / one_element),
        # Of the run that other work on the machine disturbed least.
        compute_seconds=min(median(step.compute_seconds for step in run.training_steps) for run in runs),
        curves={
            Plan.parse(run.name, _FUSION): tuple((each.step, each.values["loss"]) for each in run.evaluations)
            for run in runs
        },
    )
