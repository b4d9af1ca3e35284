"""The report's charts, each from a comparison's records."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from statistics import fmean

from trimtab_api.units import format_bandwidth, format_duration

from trimtab.report.chart import Panel, Point, Ribbon, Scale, figure, scale_for, sliced
from trimtab.report.colors import Style, color
from trimtab.report.comparison import Comparison
from trimtab.run_files.reader import Run
from trimtab.run_files.steps import Step

#: A loss is averaged over this many steps before it is drawn, since that of a single batch is noise.
LOSS_WINDOW = 20
#: Name, in the ribbon of plans, of steps that belonged to a trial and were undone.
TRIALS = "trials"
#: Parts of a step, as `Step` names them, from the bottom of a chart to its top; and for people.
PHASES = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "other work",
    "exposed": "waiting for the exchange",
}
#: Slices of time whose mean step is drawn: few enough that a round of local steps, the last of which alone waits for an
#: exchange, is seldom parted.
MOST_SLICES = 60
#: Step times are drawn up to so many times what nine of ten take at most.
MOST_OVER_USUAL = 4.0
#: Ticks of the accuracy axis, as error rates (1 - accuracy).
ERROR_MARKS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


def training_figure(comparison: Comparison) -> str:
    """Draw accuracy (with the target) and loss of every run over time."""
    runs = comparison.runs
    time = Scale(0.0, max(run.seconds for run in runs) or 1.0)
    accuracies = {run.name: accuracy_points(run) for run in runs}
    losses = {run.name: smooth(loss_points(run)) for run in runs}
    panels = []
    target = comparison.target
    if any(accuracies.values()):
        panel = Panel(
            "accuracy on held-out data (the axis stretches towards 100%)",
            time,
            error_scale(accuracies),
            260,
            lambda error: f"{100 * (1 - error):g}%",
        )
        if target is not None and target.metric == "accuracy":
            panel.rule(1 - target.value, f"target {100 * target.value:g}%")
        errors = {name: [(time, 1 - value) for time, value in points] for name, points in accuracies.items()}
        _draw(panel, errors, comparison.styles)
        panels.append(panel)
    if any(losses.values()):
        values = [value for points in losses.values() for _, value in points]
        panel = Panel(f"training loss, mean of {LOSS_WINDOW} steps", time, scale_for(values, log=True), 190, number)
        _draw(panel, losses, comparison.styles)
        panels.append(panel)
    return figure(panels, "accuracy and loss over time") if panels else ""


def network_figure(comparison: Comparison) -> str:
    """Draw the featured run: the network as set and as measured, its step times, its plans, its numbered decisions."""
    run = comparison.featured
    end = run.seconds or 1.0
    time = Scale(0.0, end)
    steps = run.training_steps
    panels: list[Panel | Ribbon] = []
    # Bandwidth in bits, so that round ticks are round in the unit that networks are sold in.
    for title, attribute, unit, text in (
        ("latency, one way", "latency", 1, format_duration),
        ("bandwidth", "bandwidth", 8, lambda bits: format_bandwidth(bits / 8)),
    ):
        set_to = [(phase.time, getattr(phase, attribute) * unit) for phase in run.phases if phase.time <= end]
        measured = [
            (s.time, getattr(s, attribute) * unit)
            for s in steps
            if getattr(s, attribute) and isfinite(getattr(s, attribute))
        ]
        if not set_to and not measured:
            continue
        panel = Panel(title, time, scale_for([v for _, v in set_to + measured], log=True), 92, text)
        if set_to:
            panel.steps(set_to, end, "stroke: var(--soft); stroke-width: 2.4", "as the emulator set it")
        panel.dots(measured, "fill: var(--accent)")
        panels.append(panel)
    if steps:
        seconds = [s.step_seconds for s in steps]
        panel = Panel("step time", time, scale_for(seconds, log=True), 130, format_duration)
        panel.dots([(s.time, s.step_seconds) for s in steps], "fill: var(--accent)")
        panels.append(panel)
        panels.append(_breakdown_over_time(steps, time))
    if panels and isinstance(panels[0], Panel):
        _flag_changes(panels[0], run)
    panels.append(plan_ribbon(run, time))
    return figure(panels, "network, step time and plan over time")


def _breakdown_over_time(steps: list[Step], time: Scale) -> Panel:
    """Draw what the mean step of each slice of time is made of, waiting for the exchange on top."""
    told = told_phases(steps)
    parts = sliced([(s.time, [getattr(s, f"{phase}_seconds") for phase in told]) for s in steps], MOST_SLICES)
    sums = sorted(sum(values) for _, values in parts)
    # The first step, or one that waited for a disk, would leave no room for all others.
    shown = min(sums[-1], MOST_OVER_USUAL * sums[int(0.9 * len(sums))])
    scale = Scale(0.0, 1.06 * shown or 1.0)
    title = "where a step's time goes" + (" (longer steps cut off)" if shown < sums[-1] else "")
    panel = Panel(title, time, scale, 110, lambda s: format_duration(s) if s else "0")
    begin = max(0.0, steps[0].time - steps[0].step_seconds)
    panel.areas(begin, parts, [f"fill: var(--{phase})" for phase in told])
    return panel


def told_phases(steps: list[Step]) -> list[str]:
    """Return those of `PHASES` that took time, in order; a single process and earlier versions told no parts."""
    return [phase for phase in PHASES if any(getattr(step, f"{phase}_seconds") for step in steps)]


def _flag_changes(panel: Panel, run: Run) -> None:
    """Flag each decision that changed the plan with its number in decisions.jsonl."""
    panel.headroom = 14
    for decision in run.decisions:
        if decision.changed:
            panel.flag(
                decision.time,
                str(decision.id),
                f"{decision.previous} → {decision.adopted}: {decision.reason}",
            )


def plan_keys(run: Run) -> dict[str, str]:
    """Return a letter for each plan that was in force, in order of appearance; trials, which are many, have none."""
    names = dict.fromkeys(_in_force(step) for step in run.steps)
    plans = [name for name in names if name != TRIALS]
    letters = {name: chr(ord("A") + index) if index < 26 else "" for index, name in enumerate(plans)}
    return letters | ({TRIALS: ""} if TRIALS in names else {})


def ribbon_color(name: str) -> str:
    """Return the colour of a plan, or of trials, in the ribbon."""
    return "var(--other-plan)" if name == TRIALS else color(name)


def plan_ribbon(run: Run, time: Scale) -> Ribbon:
    """Draw the plan in force over time; trials are spans of their own."""
    ribbon = Ribbon("plan in force", time)
    keys = plan_keys(run)
    spans = [(name, list(group)) for name, group in groupby(run.steps, key=_in_force)]
    for index, (name, steps) in enumerate(spans):
        start = steps[0].time - steps[0].step_seconds
        end = (
            spans[index + 1][1][0].time - spans[index + 1][1][0].step_seconds if index + 1 < len(spans) else run.seconds
        )
        ribbon.span(max(0.0, start), end, f"fill: {ribbon_color(name)}", (name, name.partition("/")[0]), keys[name])
    return ribbon


@dataclass(frozen=True)
class StepParts:
    """Mean seconds of a training step's parts."""

    phases: dict[str, float]
    """Seconds by the names in `PHASES`; they make up the step."""
    compress: float
    collective: float
    """Both run beside the step; what backward hides of them costs nothing."""

    @property
    def step(self) -> float:
        """The whole step."""
        return sum(self.phases.values())


def step_parts(run: Run) -> StepParts | None:
    """Return where the training steps' time went; None where there are none."""
    steps = run.training_steps
    if not steps:
        return None
    return StepParts(
        phases={phase: fmean(getattr(step, f"{phase}_seconds") for step in steps) for phase in told_phases(steps)},
        compress=fmean(step.compress_seconds for step in steps),
        collective=fmean(step.collective_seconds for step in steps),
    )


def accuracy_points(run: Run) -> list[Point]:
    """Return the reported accuracies over time."""
    return [(each.time, each.values["accuracy"]) for each in run.evaluations if "accuracy" in each.values]


def loss_points(run: Run) -> list[Point]:
    """Return the reported losses over time, those that were finite."""
    return [(s.time, s.loss) for s in run.training_steps if s.loss is not None and isfinite(s.loss)]


def error_scale(accuracies: dict[str, list[Point]]) -> Scale:
    """Return a falling logarithmic axis of error rates: the last percents take longest, and get most room."""
    least = min(1 - value for points in accuracies.values() for _, value in points)
    return Scale(1.0, max(0.001, 0.7 * least), log=True, marks=ERROR_MARKS)


def smooth(points: list[Point]) -> list[Point]:
    """Return the running mean of `LOSS_WINDOW` points."""
    means = []
    for index, (seconds, _) in enumerate(points):
        window = points[max(0, index + 1 - LOSS_WINDOW) : index + 1]
        means.append((seconds, fmean(value for _, value in window)))
    return means


def number(value: float) -> str:
    """Format a number on an axis."""
    return f"{value:g}"


def _in_force(step: Step) -> str:
    return TRIALS if step.trial else step.plan


def _draw(panel: Panel, lines: dict[str, list[Point]], styles: dict[str, Style]) -> None:
    """Draw every run's line, adaptive last so that it lies on top."""
    for name in sorted(lines, key=lambda name: name == "adaptive"):
        if lines[name]:
            panel.line(lines[name], styles[name].line, name)
