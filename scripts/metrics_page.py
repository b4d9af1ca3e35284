"""The tables of `docs/reference/metrics.md`, from what a run, a monitor and an operator export in this process."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from trimtab.run_files.layout import RunDirectory
from trimtab.status.metrics import RunMetrics
from trimtab_api.netmon.v1 import netmon_pb2
from trimtab_netmon.metrics import FAILURES, Metrics
from trimtab_operator.observability import metrics as of_operator
from trimtab_operator.observability.job_metrics import JobMetrics

#: Labels whose values are few and fixed, and told nowhere else on the page.
_VALUES = {("trimtab_netmon_failed_bandwidth_tests_total", "reason"): FAILURES}


@dataclass
class _Row:
    kind: str
    labels: dict[str, None] = field(default_factory=dict)
    text: str = ""


def with_tables(page: str) -> str:
    """The page, what stands between its marks replaced by tables as the programs are now."""
    for name, told in (("run", _of_run()), ("monitor", _of_monitor()), ("operator", _of_operator())):
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page, count = pattern.subn(lambda found, told=told: f"{found[1]}\n{_table(told)}\n{found[2]}", page)
        assert count == 1, name
    return page


def _table(told: str) -> str:
    rows = dict(sorted(_rows(told).items()))
    lines = [
        f"| `{name}`{_kind(name, row)} | {', '.join(_label(name, each) for each in row.labels)} | {row.text} |"
        for name, row in rows.items()
    ]
    return "\n".join(("| metric | labels | what it is |", "|---|---|---|", *lines, ""))


def _kind(name: str, row: _Row) -> str:
    """Return the type of a metric unless its name tells it."""
    return "" if row.kind == ("counter" if name.endswith("_total") else "gauge") else f" ({row.kind})"


def _label(name: str, label: str) -> str:
    values = ", ".join(_VALUES.get((name, label), ()))
    return f"`{label}`" + (f" ({values})" if values else "")


def _rows(told: str) -> dict[str, _Row]:
    """By name as Prometheus knows it; what every process exports of itself is left out."""
    heads = [line.split(" ", 3)[1:] for line in told.splitlines() if line.startswith(("# HELP ", "# TYPE "))]
    rows = {name: _Row(text) for word, name, text in heads if word == "TYPE" and not name.startswith("process_")}
    for word, name, text in heads:
        if word == "HELP" and name in rows:
            rows[name].text = text
    for family in text_string_to_metric_families(told):
        for sample in family.samples:
            row = rows.get(
                re.sub("_(bucket|sum|count)$", "", sample.name) if family.type == "histogram" else sample.name
            )
            if row is not None:
                row.labels |= dict.fromkeys(label for label in sample.labels if label != "le")
    return rows


def _of_run() -> str:
    figures = ("loss", "compute_seconds", "late_seconds", "gain", "achieved_ratio", "residual_norm")
    step = {
        "step": 0,
        "time": 1,
        "step_seconds": 1,
        "plan": "0.01/all-gather",
        "last_rank": 1,
        **dict.fromkeys(figures, 1),
    }
    with tempfile.TemporaryDirectory() as path:
        directory = RunDirectory(Path(path))
        evaluation = {"event": "evaluation", "step": 0, "time": 1, "accuracy": 1}
        checkpoint = {"event": "checkpoint", "step": 1, "time": 1}
        directory.metrics.write_text("".join(json.dumps(line) + "\n" for line in (step, evaluation, checkpoint)))
        return _told(RunMetrics(directory))


def _of_monitor() -> str:
    metrics, state = Metrics(), netmon_pb2.NetworkState()
    link = state.links.add(source=0, target=1)
    link.latency.value = link.bandwidth.value = 1
    metrics.show(state)
    metrics.count_request(1)
    return generate_latest(metrics.registry).decode()


class _Nobody:
    num_streams = 0

    def latest(self, uid: str) -> None:
        return None

    def since_progress(self, uid: str) -> float:
        return 1.0


def _of_operator() -> str:
    of_operator.API_REQUESTS.labels(method="GET", code="200")
    of_operator.WATCH_SILENCE_SECONDS.labels(resource="pods")
    plan = {"plan": {"name": "dense-ring"}, "state": "Running", "step": 1, "loss": 1}
    times = {"startTime": "2026-03-01T12:00:00Z"}
    started = {"type": "Started", "status": "True", "lastTransitionTime": "2026-03-01T12:00:30Z"}
    job = {
        "metadata": {"namespace": "n", "name": "j", "uid": "u"},
        "status": {**plan, **times, "conditions": [started]},
    }
    return generate_latest(of_operator.REGISTRY).decode() + _told(JobMetrics(lambda: [job], _Nobody(), 1))


def _told(collector: RunMetrics | JobMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()
