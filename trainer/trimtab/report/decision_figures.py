"""Figures of decisions: the Pareto front of each with the plan chosen, and how predictions came true."""

from __future__ import annotations

from math import isfinite

from trimtab_api.units import format_duration

from trimtab.report.chart import Scale, scale_for
from trimtab.report.plot import Plot
from trimtab.run_files.reader import Run
from trimtab.run_files.schema import DecisionLine

#: Pixels of the small chart of one decision, and of the one of all predictions.
FRONT_SIZE = (460, 190)
PREDICTIONS_SIZE = (460, 300)


def pareto_figure(decision: DecisionLine) -> str:
    """Step time across, gain upwards: a dot for each plan of the front, a ringed one for the plan chosen."""
    points = [each for each in decision.pareto if isfinite(each["step_seconds"]) and each["step_seconds"] > 0]
    if len(points) < 2:
        return ""
    across = scale_for([each["step_seconds"] for each in points], log=True)
    plot = Plot(across, Scale(0.0, 1.05), FRONT_SIZE, format_duration, lambda gain: f"{gain:g}")
    for each in points:
        said = f"{each['plan']}: {format_duration(each['step_seconds'])} a step, gain {each['gain']:.3f}"
        plot.dot(each["step_seconds"], each["gain"], said, is_chosen=each["plan"] == decision.adopted)
    return plot.svg("predicted step time", "gain", f"Pareto front of decision {decision.id}")


def predictions_figure(run: Run) -> str:
    """Predicted step time across, measured upwards, a dot for each decision that was measured; on the line: equal."""
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
