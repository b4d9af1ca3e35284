"""The judge's page: regret in each cell, simulated and measured, and the times that it is made of. It loads nothing."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from math import inf, isfinite

from trimtab_api.units import format_duration

from trimtab.evaluation.judge.arrival import Arrival
from trimtab.evaluation.judge.simulation import LEFT_OUT
from trimtab.evaluation.judge.verdict import Cell, Measured
from trimtab.plan.names import ADAPTIVE
from trimtab.report.chart import scale_for
from trimtab.report.page import document, section
from trimtab.report.plot import Plot

_SIZE = (1000, 320)


def render(cells: list[Cell]) -> str:
    """Return the page as HTML text."""
    return document(
        "The judge",
        [
            "<h1>The judge</h1>",
            '<p class="lead">Adaptive beside the best static plan in hindsight: time to a held-out loss, on networks '
            "nobody tuned for.</p>",
            section(
                "Regret in simulation",
                f"Upwards: adaptive's time over the best static plan's; 1 is as good. Here {LEFT_OUT}.",
                _regret(cells, lambda cell: (_best(cell.simulated.static), cell.simulated_over_best)),
            ),
            section(
                "Regret measured",
                "The same of real runs on emulated networks, medians, beside dense, the plans that were first in "
                "simulation, and the first that sends gradients in the buffers and by the schedule that suit it best.",
                _regret(cells, lambda cell: _point(cell.measured)),
            ),
            section(
                "Regret measured, with computing made even",
                "The same runs, had every step of a cell computed as long as in the median run. How long it does "
                "depends on what else the machine does, and hardly on the plan.",
                _regret(cells, lambda cell: _point(cell.evened)),
            ),
            section("Simulated times", "", _times(cells, _simulated_times)),
            section("Measured times", "", _times(_that_ran(cells), lambda cell: _medians(cell.measured))),
            section("With computing made even", "", _times(_that_ran(cells), lambda cell: _medians(cell.evened))),
        ],
    )


def _best(static: dict[str, float]) -> float:
    return min(static.values())


def _that_ran(cells: list[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.measured.arrivals]


def _point(measured: Measured) -> tuple[float, float] | None:
    over = measured.over_best
    if measured.best is None or over is None or not isfinite(over):
        return None
    return measured.medians[measured.best], over


def _regret(cells: list[Cell], point: Callable[[Cell], tuple[float, float] | None]) -> str:
    """Draw the best static plan's seconds across, adaptive's over it upwards."""
    points = [(cell, found) for cell in cells if (found := point(cell)) is not None]
    if not points:
        return ""
    across = scale_for([seconds for _, (seconds, _) in points], log=True)
    upwards = scale_for([1.0, *(over for _, (_, over) in points)])
    plot = Plot(across, upwards, _SIZE, format_duration, lambda over: f"{over:.2f}×")
    for cell, (seconds, over) in points:
        title = f"{cell.name}: {format_duration(seconds)} for the best static plan, adaptive {over:.2f} times that"
        plot.dot(seconds, over, title, label=cell.name, is_chosen=over > 1.25)
    return plot.svg("time of the best static plan", "adaptive over it", "adaptive over the best static plan")


def _simulated_times(cell: Cell) -> dict[str, Arrival]:
    times = {ADAPTIVE: cell.simulated.adaptive, **cell.simulated.static}
    return {name: Arrival(seconds) for name, seconds in times.items()}


def _medians(measured: Measured) -> dict[str, Arrival]:
    return {name: Arrival(seconds, measured.is_bound(name)) for name, seconds in measured.medians.items()}


def _told(arrival: Arrival) -> str:
    if arrival.seconds == inf:
        return "not reached"
    return ("given up after " if arrival.was_given_up else "") + format_duration(arrival.seconds)


def _times(cells: list[Cell], times: Callable[[Cell], dict[str, Arrival]]) -> str:
    """Make a table for each cell, folded: every plan's time."""
    return "".join(
        f"<details><summary>{escape(cell.name)}</summary><table>"
        + "".join(
            f"<tr><td>{escape(name)}</td><td>{_told(arrival)}</td></tr>"
            for name, arrival in sorted(times(cell).items(), key=lambda item: item[1].seconds)
        )
        + "</table></details>"
        for cell in cells
    )
