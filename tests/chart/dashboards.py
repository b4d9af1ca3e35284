"""Every query of every dashboard and alert, as Prometheus is asked: with the variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import yaml
from helm_chart import CHART

ALERTS = CHART / "files/alerts.yaml"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
NAMESPACE, JOB = "team", "digits"
_IN_SECONDS = {"m": 2, "h": 120}


@dataclass(frozen=True)
class Query:
    """One query, and where it stands: ``training`` (the dashboard), and the panel's title or what else asks."""

    dashboard: str
    place: str
    text: str


def dashboard_queries(namespace: str = NAMESPACE, job: str = JOB) -> Iterator[Query]:
    """Those of panels, annotations and variables, about one job."""

    def filled(text: str) -> str:
        text = text.replace("$namespace", namespace).replace("$job", job).replace("$__rate_interval", "2m")
        assert "$" not in text, f"a variable that is not filled in here: {text}"
        return text

    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                yield Query(path.stem, panel["title"], filled(target["expr"]))
        for annotation in dashboard.get("annotations", {}).get("list", ()):
            if "expr" in annotation:  # Grafana's own annotations ask Grafana
                yield Query(path.stem, annotation["name"], filled(annotation["expr"]))
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                yield Query(path.stem, f"${variable['name']}", _series(filled(variable["query"])))


def alerts() -> list[dict]:
    """The rules as they stand."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def fast_alerts(names: Collection[str], *, windows: bool = True) -> list[dict]:
    """These alerts once more, a second for each half minute, with a label that tells them from the others.

    ``windows``: those that queries look back over as well, not only how long each must hold.
    """

    def fast(text: str) -> str:
        return re.sub(r"\b(\d+)([mh])\b", lambda told: f"{int(told[1]) * _IN_SECONDS[told[2]]}s", text)

    made = []
    for rule in alerts():
        if rule["alert"] in names:
            asked = fast(rule["expr"]) if windows else rule["expr"]
            labels = {**rule["labels"], "motion": "fast"}
            made.append({**rule, "expr": asked, "for": fast(rule["for"]), "labels": labels})
    return made


def _series(query: str) -> str:
    """What ``label_values(SERIES, LABEL)`` reads the values from."""
    series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
    return f"count by ({label}) ({series})"
