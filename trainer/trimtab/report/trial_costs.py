"""The cost of a run's trials: a row for each plan that was tried."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from statistics import median

from trimtab_api.units import format_duration

from trimtab.run_files.reader import Run


@dataclass(frozen=True)
class TrialCost:
    """All trials of one plan."""

    plan: str
    num_steps: int
    seconds: float
    median_step_seconds: float


def trial_costs(run: Run) -> list[TrialCost]:
    """Return the cost of trials by plan, the dearest first."""
    tried: dict[str, list[float]] = {}
    for step in run.steps:
        if step.trial:
            tried.setdefault(step.plan, []).append(step.step_seconds)
    costs = [TrialCost(plan, len(each), sum(each), median(each)) for plan, each in tried.items()]
    return sorted(costs, key=lambda cost: -cost.seconds)


def trial_table(run: Run) -> str:
    """Return the cost of trials as a table, with the share of the run's time; empty where nothing was tried."""
    costs = trial_costs(run)
    if not costs:
        return ""
    head = "<tr><th>plan tried</th><th>steps</th><th>step</th><th>time</th><th>of the run</th></tr>"
    total = TrialCost("all", sum(c.num_steps for c in costs), sum(c.seconds for c in costs), 0.0)
    rows = "".join(
        f"<tr><td>{escape(cost.plan)}</td><td>{cost.num_steps}</td>"
        f"<td>{format_duration(cost.median_step_seconds) if cost.median_step_seconds else ''}</td>"
        f"<td>{format_duration(cost.seconds)}</td><td>{cost.seconds / (run.seconds or 1.0):.1%}</td></tr>"
        for cost in (*costs, *([total] if len(costs) > 1 else []))
    )
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
