"""Every query of every dashboard and alert, as Prometheus is asked: with the variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml
from helm_chart import CHART

ALERTS = CHART / "files/alerts.yaml"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
NAMESPACE, JOB = "team", "digits"


@dataclass(frozen=True)
class Query:
    """One query, and where it stands: ``training`` (the dashboard), and the panel's title or what else asks."""

    dashboard: str
    place: str
    text: str


def dashboard_queries() -> Iterator[Query]:
    """Those of panels, annotations and variables."""
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                yield Query(path.stem, panel["title"], _filled(target["expr"]))
        for annotation in dashboard.get("annotations", {}).get("list", ()):
            if "expr" in annotation:  # Grafana's own annotations ask Grafana
                yield Query(path.stem, annotation["name"], _filled(annotation["expr"]))
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                yield Query(path.stem, f"${variable['name']}", _series(_filled(variable["query"])))


def alerts() -> list[dict]:
    """The rules as they stand."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def _filled(text: str) -> str:
    filled = text.replace("$namespace", NAMESPACE).replace("$job", JOB).replace("$__rate_interval", "2m")
    assert "$" not in filled, f"a variable that is not filled in here: {filled}"
    return filled


def _series(query: str) -> str:
    """What ``label_values(SERIES, LABEL)`` reads the values from."""
    series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
    return f"count by ({label}) ({series})"
