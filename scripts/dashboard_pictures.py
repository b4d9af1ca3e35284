"""Draws the chart's Grafana dashboards from Prometheus data, by matplotlib: the pictures are not Grafana's own."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FuncFormatter

DASHBOARDS = Path(__file__).resolve().parents[1] / "charts/trimtab/dashboards"
LABEL = (
    "Drawn by scripts/pictures from Prometheus data, not by Grafana. Job: examples/digits.yaml, four workers, {day}."
)
#: Said of the operator's dashboard, whose operator is not on a cluster.
OF_FLEET = " The operator runs against a test API server with one job."
#: Inches of a column and of a row of Grafana's grid.
COLUMN, ROW = 0.56, 0.31
THEMES = {"light": "default", "dark": "dark_background"}
COLORS = mpl.color_sequences["tab10"]
EMPTY = "no data: this query needs a cluster, or nothing has happened"

Series = list[tuple[str, dict[str, str], list[tuple[float, float]]]]


def draw_dashboards(data: Mapping[str, Any], out: Path) -> list[Path]:
    """Write ``dashboard-NAME-THEME.png`` for each dashboard, and return the files."""
    results: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for asked in data["panels"]:
        results[asked["dashboard"], asked["panel"]].append(asked)
    files = []
    for theme, style in THEMES.items():
        with pyplot.style.context([style, {"font.size": 8, "axes.titlesize": 9, "axes.titleweight": "bold"}]):
            for dashboard in sorted(DASHBOARDS.glob("*.json")):
                files.append(out / f"dashboard-{dashboard.stem}-{theme}.png")
                _draw(json.loads(dashboard.read_text()), dashboard.stem, results, data, files[-1])
    return files


def _draw(dashboard: dict[str, Any], name: str, results: Any, data: Mapping[str, Any], file: Path) -> None:
    panels = dashboard["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = 24 * COLUMN, rows * ROW + 0.7
    figure = pyplot.figure(figsize=(width, height))
    figure.text(0.01, 1 - 0.2 / height, dashboard["title"], fontsize=13, fontweight="bold", va="center")
    day = time.strftime("%Y-%m-%d", time.gmtime(data["end"]))
    figure.text(
        0.01, 1 - 0.48 / height, LABEL.format(day=day) + (OF_FLEET if name == "fleet" else ""), fontsize=8, va="center"
    )
    for number, panel in enumerate(panels):
        place = panel["gridPos"]
        left, top = place["x"] * COLUMN + 0.9, place["y"] * ROW + 0.7 + 0.3
        box = (place["w"] * COLUMN - 1.6, place["h"] * ROW - 0.75)
        axes = figure.add_axes((left / width, 1 - (top + box[1]) / height, box[0] / width, box[1] / height))
        axes.set_title(panel["title"], loc="left")
        asked = results[name, number]
        if not any(query["result"] for query in asked):
            axes.set_axis_off()
            axes.text(0, 0.5, EMPTY, transform=axes.transAxes, style="italic")
        elif panel["type"] == "table":
            _table(axes, panel, asked[0]["result"])
        elif panel["type"] == "state-timeline":
            _bands(axes, read_series(asked), data)
        else:
            _lines(axes, panel, read_series(asked), data)
    figure.savefig(file, dpi=80)
    pyplot.close(figure)


def read_series(asked: list[dict[str, Any]]) -> Series:
    """Return legend, labels and points of each line."""
    found: Series = []
    for query in asked:
        for result in query["result"]:
            labels = result["metric"]
            legend = re.sub(r"{{(\w+)}}", lambda match, of=labels: of.get(match[1], ""), query["legend"])
            points = [(at, float(value)) for at, value in result["values"]]
            found.append((legend.strip() or ", ".join(labels.values()), labels, points))
    return found


def _formatter(unit: str | None, places: int | None = None) -> Any:
    if unit == "percentunit":
        return FuncFormatter(lambda value, _: f"{100 * value:.4g}%")
    if unit in ("s", "Bps", "bytes"):
        return EngFormatter({"s": "s", "Bps": "B/s", "bytes": "B"}[unit], places=places, sep=" ")
    suffix = {"cps": "/s", "reqps": "/s"}.get(unit or "", "")
    return FuncFormatter(lambda value, _: f"{value:.4g}{suffix}")


def _lines(axes: Axes, panel: dict[str, Any], series: Series, data: Mapping[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal"
    right = {
        override["matcher"]["options"]: {part["id"]: part["value"] for part in override["properties"]}
        for override in panel["fieldConfig"].get("overrides", ())
    }
    other, handles = None, []
    if stacked:
        times = sorted({at for _, _, points in series for at, _ in points})
        heights = [[dict(points).get(at, 0.0) for at in times] for _, _, points in series]
        seconds = [at - data["begin"] for at in times]
        handles = axes.stackplot(seconds, heights, labels=[name for name, *_ in series], colors=COLORS, alpha=0.75)
    for number, (name, _, points) in enumerate([] if stacked else series):
        target = axes
        if name in right:
            other = other or axes.twinx()
            other.yaxis.set_major_formatter(_formatter(right[name].get("unit")))
            target, name = other, f"{name} (right)"
        seconds = [at - data["begin"] for at, _ in points]
        (line,) = target.plot(seconds, [value for _, value in points], color=COLORS[number % 10], label=name, lw=1.2)
        handles.append(line)
    axes.yaxis.set_major_formatter(_formatter(defaults.get("unit")))
    for one in filter(None, (axes, other)):
        one.set_ylim(bottom=0)
    axes.set_xlim(0, data["end"] - data["begin"])
    axes.xaxis.set_major_formatter(EngFormatter("s", sep=" "))
    axes.grid(alpha=0.25)
    shown = handles[:8]
    names = [shorten(str(handle.get_label()), 44, placeholder="…") for handle in shown]
    if len(handles) > len(shown):
        names[-1] += f" and {len(handles) - len(shown)} more"
    (other or axes).legend(
        shown, names, fontsize=6.5, loc="upper right", framealpha=0.7, ncols=2 if len(names) > 4 else 1
    )


def _bands(axes: Axes, series: Series, data: Mapping[str, Any]) -> None:
    for number, (name, _, points) in enumerate(series):
        axes.broken_barh(
            [(at - data["begin"], 2.0) for at, _ in points], (number - 0.4, 0.8), color=COLORS[number % 10]
        )
        axes.text(0.004, number, shorten(name, 100, placeholder="…"), transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks([])
    axes.set_ylim(len(series) - 0.5, -0.5)
    axes.set_xlim(0, data["end"] - data["begin"])
    axes.xaxis.set_major_formatter(EngFormatter("s", sep=" "))


def _table(axes: Axes, panel: dict[str, Any], result: list[dict[str, Any]]) -> None:
    form = _formatter(panel["fieldConfig"]["defaults"].get("unit"), places=1)
    axes.set_axis_off()
    transformation = panel["transformations"][0]
    if transformation["id"] == "groupingToMatrix":
        links = {(one["metric"]["source"], one["metric"]["target"]): float(one["value"][1]) for one in result}
        ends = sorted({end for link in links for end in link}, key=int)
        cells = [["", *ends]]
        cells += [[row, *(form(links[row, end]) if (row, end) in links else "" for end in ends)] for row in ends]
        low, high = min(links.values()), max(links.values())
        span = max(high - low, 0.2 * high) or 1.0  # links that are nearly alike look alike
        reverse = "bl" in panel["fieldConfig"]["defaults"].get("color", {}).get("mode", "").lower()
        scale = mpl.colormaps["YlGnBu" if reverse else "YlOrRd"]
        colors = [["none"] * len(cells[0])]
        for row in ends:
            shades = [
                scale(0.15 + 0.5 * (links[row, end] - low) / span) if (row, end) in links else "none" for end in ends
            ]
            colors.append(["none", *shades])
    else:
        names = transformation["options"]["include"]["names"]
        cells = [[name.removeprefix("trimtab_dev_") for name in names]]
        for one in result[:6]:
            values = one["metric"] | {"Value": form(float(one["value"][1]))}
            cells.append([shorten(values.get(name, ""), 40, placeholder="…") for name in names])
        colors = [["none"] * len(names) for _ in cells]
    table = axes.table(cells, cellColours=colors, cellLoc="left", loc="upper left", edges="closed")
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    table.scale(1, 1.35)
    for (row, column), cell in table.get_celld().items():
        cell.set_edgecolor("#8888")
        is_shaded = colors[row][column] != "none"
        cell.get_text().set_color("black" if is_shaded else mpl.rcParams["text.color"])
