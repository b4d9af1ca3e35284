"""The report's tables of decisions (why each was made, what came of it, its Pareto front) and of what trials cost."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from statistics import median

from trimtab_api.units import format_bandwidth, format_duration

from trimtab.report.chart import Scale, scale_for
from trimtab.report.plot import Plot
from trimtab.run_files.reader import Run
from trimtab.run_files.schema import ReportedDecision

#: Plans of a decision's Pareto front that the page shows; ``decisions.jsonl`` holds all of them.
MAX_PARETO_POINTS = 12


def decisions_table(run: Run) -> tuple[str, str]:
    """Return hint and table of a run's decisions; decisions that kept the plan are folded."""
    if not run.decisions:
        return "", ""
    body = _decision_table([decision for decision in run.decisions if decision.changed])
    kept = [decision for decision in run.decisions if not decision.changed]
    if kept:
        summary = f"<summary>{len(kept)} more that kept the plan</summary>"
        body += f"<details>{summary}{_decision_table(kept)}</details>"
    hint = (
        f"Of the {run.name} run. Step times are those of the previous plan → the plan adopted. Of a front's plans: a "
        "mean step's share of compression, and of the exchange what is not hidden."
    )
    return hint, body


def _decision_table(decisions: list[ReportedDecision]) -> str:
    head = (
        "<th></th><th>time</th><th class=left>why</th><th class=left>from → to</th><th>predicted</th><th>measured</th>"
    )
    body = "".join(_decision(decision) for decision in decisions)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _decision(decision: ReportedDecision) -> str:
    badge = f'<span class="badge">{decision.id}</span>'
    lines = (
        [decision.previous.name, f"→ {decision.adopted.name}"]
        if decision.changed
        else [f"kept {decision.adopted.name}"]
    )
    plans = "<br>".join(map(_breakable, lines))
    predicted = _pair(decision.predicted_previous_seconds, decision.predicted_seconds)
    measured = _pair(decision.measured_previous_seconds, decision.measured_seconds)
    reason = f"{_breakable(decision.reason)}<small>{escape(_inputs(decision))}</small>"
    front = _pareto(decision)
    beneath = f'<tr class="beneath"><td colspan="2"></td><td colspan="4" class="left">{front}</td></tr>'
    return (
        f"<tr><td>{badge}</td><td>{decision.time:.1f} s<small>step {decision.step}</small></td>"
        f'<td class="reason">{reason}</td>'
        f'<td class="left">{plans}</td><td>{predicted}</td><td>{measured}</td></tr>{beneath if front else ""}'
    )


def _breakable(text: str) -> str:
    """Let names of plans, which may be long, break where an axis ends."""
    return escape(text).replace("/", "/<wbr>")


def _pair(previous: float | None, adopted: float | None) -> str:
    return " → ".join("–" if seconds is None else format_duration(seconds) for seconds in (previous, adopted))


def _inputs(decision: ReportedDecision) -> str:
    known = decision.known_inputs
    said = [f"trigger: {decision.trigger}"]
    for name, text in (("latency", format_duration), ("bandwidth", format_bandwidth)):
        if known.get(name) is not None:
            said.append(f"{name} {text(known[name])}")
    if known.get("gain") is not None:
        said.append(f"gain {known['gain']:.3f}")
    return ", ".join(said)


def _pareto(decision: ReportedDecision) -> str:
    """Return the fastest plans of the Pareto front, folded."""
    if not decision.pareto:
        return ""
    by_time = sorted(decision.pareto, key=lambda point: point.step_seconds)
    chosen = [point for point in by_time[MAX_PARETO_POINTS:] if point.plan == decision.adopted.name]
    fastest = by_time[:MAX_PARETO_POINTS]
    lines = "".join(
        f"<tr{' class=chosen' if point.plan == decision.adopted.name else ''}>"
        f'<td class="left">{_breakable(point.plan)}</td>'
        f"<td>{format_duration(point.compress_seconds)}</td>"
        f"<td>{format_duration(point.sync_seconds)}</td><td>{point.gain:.3f}</td>"
        f"<td>{format_duration(point.step_seconds)}</td></tr>"
        for point in fastest + chosen
    )
    head = "<tr><th>plan</th><th>compression</th><th>exchange</th><th>gain</th><th>step</th></tr>"
    shown = f"the {len(fastest)} fastest" + (" and the one chosen" if chosen else "")
    of_all = f", {shown} shown" if len(fastest) < len(decision.pareto) else ""
    summary = f"<summary>{len(decision.pareto)} plans on the Pareto front{of_all}</summary>"
    body = f'<div class="front">{pareto_figure(decision)}<table>{head}{lines}</table></div>'
    return f"<details>{summary}{body}</details>"


#: Pixels of the small chart of one decision, and of the one of all predictions.
FRONT_SIZE = (460, 190)
PREDICTIONS_SIZE = (460, 300)


def pareto_figure(decision: ReportedDecision) -> str:
    """Draw step time across, gain upwards: a dot for each plan of the front, a ringed one for the plan chosen."""
    points = [each for each in decision.pareto if each.step_seconds > 0]
    if len(points) < 2:
        return ""
    across = scale_for([each.step_seconds for each in points], log=True)
    plot = Plot(across, Scale(0.0, 1.05), FRONT_SIZE, format_duration, lambda gain: f"{gain:g}")
    for each in points:
        said = f"{each.plan}: {format_duration(each.step_seconds)} a step, gain {each.gain:.3f}"
        plot.dot(each.step_seconds, each.gain, said, is_chosen=each.plan == decision.adopted.name)
    return plot.svg("predicted step time", "gain", f"Pareto front of decision {decision.id}")


def predictions_figure(run: Run) -> str:
    """Draw predicted step time across, measured upwards, a dot for each measured decision; on the line: equal."""
    points = [
        (decision, decision.predicted_seconds, decision.measured_seconds)
        for decision in run.decisions
        if decision.predicted_seconds and decision.measured_seconds
    ]
    if not points:
        return ""
    scale = scale_for([seconds for _, *both in points for seconds in both], log=True)
    plot = Plot(scale, scale, PREDICTIONS_SIZE, format_duration, format_duration)
    plot.diagonal()
    for decision, predicted, measured in points:
        said = f"decision {decision.id}, {decision.adopted}: {format_duration(predicted)} predicted, "
        plot.dot(predicted, measured, f"{said}{format_duration(measured)} measured", label=str(decision.id))
    return plot.svg("predicted", "measured", "predicted and measured step times")


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
