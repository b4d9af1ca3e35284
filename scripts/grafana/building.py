"""Parts of every dashboard: its variables, and panels that say what they show and what a bad value asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grafana_foundation_sdk.builders import common, prometheus, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, FieldColor, QueryVariable
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import AxisPlacement, StackingMode, VisibilityMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
#: Labels of the job that is looked at.
JOB = 'namespace="$namespace",trimtab_dev_job_name="$job"'
#: Columns of a dashboard.
FULL, HALF = 24, 12
#: The phases that make up a step, as a pattern of the label ``phase``.
STEP_PHASES = "forward|backward|exposed|optimizer|other"
#: Pixels left of panels that stand above each other, so that their time axes do too.
_AXIS_WIDTH = 90


def dashboard(name: str, title: str, series: str, *, several: bool = False) -> Dashboard:
    """An empty dashboard of a job that is chosen among those of ``series``; or of ``several``, at first of all."""
    made = Dashboard(title).uid(f"trimtab-{name}").tags(["trimtab"]).editable().refresh("30s").time("now-1h", "now")
    made = made.tooltip(DashboardCursorSync.CROSSHAIR)
    made = made.with_variable(DatasourceVariable("datasource").type("prometheus").label("Data source"))
    of_namespace = f'{series}{{namespace=~"$namespace"}}' if several else f'{series}{{namespace="$namespace"}}'
    variables = {
        "namespace": ("Namespace", f"label_values({series}, namespace)"),
        "job": ("Job", f"label_values({of_namespace}, trimtab_dev_job_name)"),
    }
    for name, (label, query) in variables.items():
        refresh = VariableRefresh.ON_TIME_RANGE_CHANGED
        variable = QueryVariable(name).label(label).datasource(SOURCE).query(query).refresh(refresh)
        made = made.with_variable(variable.multi(True).include_all(True).all_value(".*") if several else variable)
    return made


def lines(
    title: str,
    unit: str,
    queries: Mapping[str, str],
    *,
    shows: str,
    bad: str,
    width: int = HALF,
    height: int = 7,
    stacked: bool = False,
    right: Mapping[str, str] | None = None,
    top: float | None = None,
) -> timeseries.Panel:
    """Lines over time; ``queries`` by their legends. ``right``: units of lines that have the axis on the right."""
    panel = timeseries.Panel().title(title).description(f"{shows} {bad}").datasource(SOURCE).unit(unit).min(0)
    panel = panel.span(width).height(height).axis_width(_AXIS_WIDTH)
    if top is not None:
        panel = panel.max(top)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(40)
    for legend, unit_of_it in (right or {}).items():
        placed = DynamicConfigValue("custom.axisPlacement", AxisPlacement.RIGHT)
        panel = panel.override_by_name(legend, [placed, DynamicConfigValue("unit", unit_of_it)])
    return panel.targets(_targets(queries))


def bands(title: str, query: str, legend: str, *, shows: str, bad: str, height: int = 6) -> statetimeline.Panel:
    """A band over time for each series while it exists."""
    panel = statetimeline.Panel().title(title).description(f"{shows} {bad}").datasource(SOURCE)
    panel = panel.show_value(VisibilityMode.NEVER).span(FULL).height(height)
    return panel.targets(_targets({legend: query}))


def matrix(title: str, unit: str, query: str, *, shows: str, bad: str, low_is_bad: bool) -> table.Panel:
    """A heat map of links: a row for each source, a column for each target.

    Bad values are yellow where low ones are bad and red where high ones are; colours differ in lightness as well.
    """
    panel = _table(title, unit, query, shows, bad)
    grouped = {"columnField": "target", "rowField": "source", "valueField": "Value"}
    panel = panel.with_transformation(DataTransformerConfig("groupingToMatrix", options=grouped))
    colors = FieldColorModeId.CONTINUOUS_YL_BL if low_is_bad else FieldColorModeId.CONTINUOUS_YL_RD
    cells = DynamicConfigValue("custom.cellOptions", {"type": "color-background"})
    panel = panel.color_scheme(FieldColor().mode(colors))
    return panel.override_by_regexp("[0-9]+", [cells])


def ranking(title: str, unit: str, query: str, columns: Sequence[str], *, shows: str, bad: str) -> table.Panel:
    """A table as it is now, of these labels and the value."""
    panel = _table(title, unit, query, shows, bad)
    keep = DataTransformerConfig("filterFieldsByName", options={"include": {"names": [*columns, "Value"]}})
    return panel.with_transformation(keep)


def as_json(made: Dashboard, panels: Iterable[Any], annotations: Sequence[Mapping[str, str]] = ()) -> str:
    """The text of the file. ``annotations`` by their fields: the SDK leaves out those of Prometheus."""
    for panel in panels:
        made = made.with_panel(panel)
    data: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True).encode(made.build()))
    source = {"type": "prometheus", "uid": "${datasource}"}
    data["annotations"] = {
        "list": [{"datasource": source, "enable": True, "iconColor": "orange", **each} for each in annotations]
    }
    data["panels"] = [
        {"id": number} | {name: value for name, value in panel.items() if value is not None}
        for number, panel in enumerate(data["panels"], start=1)
    ]
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _table(title: str, unit: str, query: str, shows: str, bad: str) -> table.Panel:
    panel = table.Panel().title(title).description(f"{shows} {bad}").datasource(SOURCE).unit(unit)
    asked = prometheus.Dataquery().expr(query).ref_id("A").format(PromQueryFormat.TABLE).instant()
    return panel.span(HALF).height(8).with_target(asked)


def _targets(queries: Mapping[str, str]) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery().expr(query).ref_id(chr(ord("A") + number)).legend_format(legend)
        for number, (legend, query) in enumerate(queries.items())
    ]
