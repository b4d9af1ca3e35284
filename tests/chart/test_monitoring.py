"""Dashboards and who is scraped: against what the operator, a monitor and a run really export."""

import json
import re
from pathlib import Path

import pytest
from dashboards import ALERTS, DASHBOARDS
from prometheus_client.parser import text_string_to_metric_families
from trimtab_api.names import MONITOR_METRICS_PORT, TRAINER_METRICS_PORT
from trimtab_api.trainingjob import load_training_job
from trimtab_operator.children.pod import pod_template
from trimtab_operator.settings import Settings

EXAMPLE = Path(__file__).parents[2] / "examples/digits.yaml"


@pytest.fixture(scope="module")
def exported(scraped):
    """Names of all samples that they export."""
    texts = scraped.values()
    kinds = dict(line.split()[2:4] for text in texts for line in text.splitlines() if line.startswith("# TYPE "))
    return {f"{name}{suffix}" for name, kind in kinds.items() for suffix in suffixes(kind)}


def suffixes(kind):
    return ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)


def test_dashboards_and_alerts_ask_for_metrics_that_are_exported(exported):
    text = ALERTS.read_text() + "".join(path.read_text() for path in DASHBOARDS)
    asked = set(re.findall(r"\btrimtab_(?:network|netmon|operator|trainer)_[a-z_]+", text))
    assert asked - exported == set()
    assert len(asked) > 20


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_each_panel_says_what_it_shows_and_what_a_bad_value_asks_for(path):
    dashboard = json.loads(path.read_text())
    assert {"namespace", "job"} <= {each["name"] for each in dashboard["templating"]["list"]}
    for panel in dashboard["panels"]:
        assert len(re.findall(r"[.](?: |$)", panel["description"])) >= 2, panel["title"]


@pytest.mark.parametrize("program", ["run", "monitor", "operator"])
def test_the_reference_lists_what_is_exported_and_nothing_else(scraped, program):
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
    table = re.search(f"<!-- generated: {program} -->(.*?)<!-- end -->", page, re.DOTALL)[1]
    rows = [
        (name, kind or ("counter" if name.endswith("_total") else "gauge"), labels, text)
        for name, kind, labels, text in re.findall(
            r"^\| `(\w+)`(?: \((\w+)\))? \| (.*) \| (.*) \|$", table, re.MULTILINE
        )
    ]
    lines = scraped[program].splitlines()
    texts = dict(line.split(" ", 3)[2:] for line in lines if line.startswith("# HELP trimtab_"))
    kinds = dict(line.split()[2:] for line in lines if line.startswith("# TYPE trimtab_"))
    assert {(name, kind, text) for name, kind, _, text in rows} == {(n, kinds[n], text) for n, text in texts.items()}
    labels = {name: {"le", *re.findall(r"`(\w+)`", said)} for name, _, said, _ in rows}
    for family in text_string_to_metric_families(scraped[program]):
        for sample in family.samples:
            if sample.name in labels:
                assert set(sample.labels) <= labels[sample.name]


@pytest.mark.helm
def test_what_is_scraped_is_there(helm):
    objects = helm.template("monitoring.enabled=true")
    of_operator, of_jobs = [each["spec"] for each in objects if each["kind"] == "PodMonitor"]
    (endpoint,) = of_operator["podMetricsEndpoints"]
    (operator,) = [each["spec"]["template"] for each in objects if each["kind"] == "Deployment"]
    (container,) = operator["spec"]["containers"]
    assert endpoint["port"] in {each["name"] for each in container["ports"]}
    assert of_operator["selector"]["matchLabels"].items() <= operator["metadata"]["labels"].items()

    settings = Settings("trimtab", None, "netmon:1", "monitoring", 1, 0, "me")
    pod = pod_template(load_training_job(EXAMPLE), "team", 0, settings)
    of_monitor, of_run = of_jobs["podMetricsEndpoints"]
    containers = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
    ports = [port for each in containers for port in each["ports"]]
    assert {"name": of_monitor["port"], "containerPort": MONITOR_METRICS_PORT} in ports
    assert {"name": of_run["port"], "containerPort": TRAINER_METRICS_PORT} in ports
    (of_rank_0,) = of_run["relabelings"]
    assert (of_rank_0["regex"], of_rank_0["action"]) == ("0", "keep")
    (chosen,) = of_jobs["selector"]["matchExpressions"]
    assert chosen["key"] in pod["metadata"]["labels"]
