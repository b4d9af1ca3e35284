"""Dashboards, alerts and who is scraped: against what the operator and a monitor really export, and by promtool."""

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import prometheus
import pytest
import yaml
from dashboards import ALERTS, DASHBOARDS, dashboard_queries
from programs import Program, wait_until
from trimtab_api.names import MONITOR_METRICS_PORT, TRAINER_METRICS_PORT
from trimtab_api.trainingjob import load_training_job
from trimtab_operator.children.pod import pod_template
from trimtab_operator.settings import Settings
from trimtab_operator.work_queue import WorkQueue

EXAMPLE = Path(__file__).parents[2] / "examples/digits.yaml"
NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "nowhere",
    "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "nobody", "user": {}}],
    "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
}
NEWS_RECONCILES = "trimtab_operator_reconciles_total"
OF_A_JOB = '{namespace="team",trimtab_dev_job_name="digits"}'


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def scrape(program, port):
    """What a program exports, once it does."""
    found = []

    def answers():
        assert program.is_running, program.last_lines()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
                found.append(answer.read().decode())
        except OSError:
            return False
        return True

    wait_until(answers, f"port {port} answers with metrics ({program.log})")
    return found[0]


def write_run(directory):
    """A run of one step and one decision."""
    directory.mkdir()
    figures = dict.fromkeys(("time", "loss", "step_seconds", "compute_seconds", "late_seconds", "gain"), 0.5)
    step = {"step": 0, "plan": "0.01/all-gather", "plan_version": 1, "last_rank": 1, "finite": True, **figures}
    decision = {"record": "decision", "trigger": "network", "changed": True, "predicted_seconds": 0.5}
    measured = {"record": "measured", "measured_step_seconds": 0.5}
    evaluation = {"event": "evaluation", "step": 0, "time": 0.5, "accuracy": 0.5}
    (directory / "job.json").write_text("{}")
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (step, evaluation)))
    (directory / "decisions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (decision, measured)))


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """What a real operator that does not lead, a real monitor and the server of a run's metrics export."""
    directory = tmp_path_factory.mktemp("scraped")
    (directory / "kubeconfig").write_text(json.dumps(NOWHERE))
    own, of_operator, of_monitor, of_run = free_ports(4)
    write_run(directory / "run")
    commands = {
        of_operator: ["-m", "trimtab_operator.main", "--netmon-image=netmon:1", f"--port={of_operator}"],
        of_monitor: ["-m", "trimtab_netmon.main", "serve", "--rank=0", f"--peers=localhost:{own}", "--interface=lo"],
    }
    commands[of_run] = ["-m", "trimtab", "metrics", str(directory / "run"), f"--port={of_run}"]
    commands[of_monitor] += [f"--listen=127.0.0.1:{own}", f"--metrics-port={of_monitor}"]
    programs = {
        port: Program(
            [sys.executable, *command], directory / f"{port}.log", {"KUBECONFIG": str(directory / "kubeconfig")}
        )
        for port, command in commands.items()
    }
    try:
        texts = [scrape(program, port) for port, program in programs.items()]
    finally:
        for program in programs.values():
            program.kill()
    return dict(zip(("operator", "monitor", "run"), texts, strict=True))


@pytest.fixture(scope="module")
def exported(scraped):
    """Names of all samples that they export."""
    texts = scraped.values()
    kinds = dict(line.split()[2:4] for text in texts for line in text.splitlines() if line.startswith("# TYPE "))
    return {f"{name}{suffix}" for name, kind in kinds.items() for suffix in suffixes(kind)}


@pytest.fixture(scope="module")
def standby(scraped):
    """Half an hour of the series of an operator that does not lead while jobs come and go, from all that it exports."""
    series = {}
    for line in scraped["operator"].splitlines():
        if not line.startswith("#"):
            sample, value = line.rsplit(" ", 1)
            name, brace, labels = sample.partition("{")
            series[f'{name}{{pod="standby"{"," + labels if brace else "}"}'] = f"{value}x30"
    assert series['trimtab_operator_leader{pod="standby"}'] == "0.0x30"
    queued = 'trimtab_operator_queue_wait_seconds{pod="standby"}'
    assert queued in series
    minutes = itertools.count()
    queue = WorkQueue(clock=lambda: 60.0 * next(minutes))
    queue.add("team/digits")  # and nobody asks for it
    return {**series, queued: " ".join(f"{queue.longest_wait:g}" for _ in range(30))}


def suffixes(kind):
    return ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)


def check(*arguments, cwd=None):
    done = subprocess.run(
        [prometheus.obtain("promtool"), *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


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


@pytest.mark.parametrize(("program", "section"), [("monitor", "A monitor"), ("operator", "The operator")])
def test_the_reference_lists_what_is_exported_and_nothing_else(scraped, program, section):
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
    (table,) = [part for part in page.split("\n## ") if part.startswith(section)]
    prefix = re.search(r"\| metric `(\w+)\.\.\.` \|", table)[1]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    kinds = [line.split()[2] for line in scraped[program].splitlines() if line.startswith("# TYPE ")]
    exported = {kind for kind in kinds if not kind.startswith("process_")}
    assert {f"{prefix}{name}" for row in rows for name in re.findall(r"`([a-z_]+)`", row)} == exported


@pytest.mark.prometheus
def test_prometheus_takes_every_query_and_every_alert(tmp_path):
    records = [
        {"record": "dashboard:query", "expr": query.text, "labels": {"n": str(n)}}
        for n, query in enumerate(dashboard_queries())
    ]
    assert len(records) > 10
    (tmp_path / "dashboards.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": records}]}))
    check("check", "rules", tmp_path / "dashboards.yaml")
    check("check", "rules", ALERTS)


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("alert", "bad", "good", "labels", "says"),
    [
        (
            "TrimtabOperatorHasNoLeader",
            {"trimtab_operator_leader": "0x30"},
            {"trimtab_operator_leader": "1x30"},
            {"severity": "critical"},
            {},
        ),
        ("TrimtabOperatorHasNoLeader", {}, {"trimtab_operator_leader": "1x30"}, {"severity": "critical"}, {}),
        (
            "TrimtabOperatorFallsBehind",
            {"trimtab_operator_queue_wait_seconds": "45x30"},
            {"trimtab_operator_queue_wait_seconds": "5x30"},
            {"severity": "warning"},
            {"summary": "The first TrainingJob in the operator's queue has waited for 45s."},
        ),
        (
            "TrimtabOperatorKeepsFailing",
            {f"{NEWS_RECONCILES}{{result='error'}}": "0+1x30", f"{NEWS_RECONCILES}{{result='ok'}}": "0+9x30"},
            {
                f"{NEWS_RECONCILES}{{result='error'}}": "0x18 2x12",
                f"{NEWS_RECONCILES}{{result='conflict'}}": "0+1x30",
                f"{NEWS_RECONCILES}{{result='ok'}}": "0+9x30",
            },
            {"severity": "warning", "result": "error"},
            {"summary": "Reconciliations by the Trimtab operator keep ending as error."},
        ),
        (
            "TrimtabOperatorKeepsFailing",
            {
                f"{NEWS_RECONCILES}{{result='refused',pod='{pod}'}}": values
                for pod, values in (("a", "0+1x15 15x15"), ("b", "0x14 0+1x15"))
            },
            {f"{NEWS_RECONCILES}{{result='refused',pod='a'}}": "0+1x15 15x15"},
            {"severity": "warning", "result": "refused"},
            {"summary": "Reconciliations by the Trimtab operator keep ending as refused."},
        ),
        (
            "TrimtabNetworkSlow",
            {f"trimtab_network_bandwidth_bytes_per_second{OF_A_JOB}": "125000000x10 12500000x20"},
            {f"trimtab_network_bandwidth_bytes_per_second{OF_A_JOB}": "125000000x30"},
            {"severity": "warning", "namespace": "team", "trimtab_dev_job_name": "digits"},
            {
                "summary": "The network of team/digits carries less than half of what it did.",
                "description": "Its slowest link now carries 11.92MiB/s. "
                "Which one: trimtab_network_link_bandwidth_bytes_per_second.",
            },
        ),
        (
            "TrimtabTrainingStalled",
            {f"trimtab_trainer_steps_total{OF_A_JOB}": "0+5x8 40x22"},
            {f"trimtab_trainer_steps_total{OF_A_JOB}": "0+1x30"},
            {"severity": "warning", "namespace": "team", "trimtab_dev_job_name": "digits"},
            {
                "summary": "team/digits has taken no training step for a quarter of an hour.",
                "description": "See kubectl describe tj and the log of its worker 0. Stopped at step 40.",
            },
        ),
        (
            "TrimtabPlanFlaps",
            {f"trimtab_trainer_plan_changes_total{OF_A_JOB}": "0+2x30"},
            {f"trimtab_trainer_plan_changes_total{OF_A_JOB}": "0 0 1x8 2x20"},
            {"severity": "warning", "namespace": "team", "trimtab_dev_job_name": "digits"},
            {"summary": "team/digits changes its plan more than once a minute."},
        ),
        (
            "TrimtabStepsDropped",
            {
                f"trimtab_trainer_dropped_steps_total{OF_A_JOB}": "0+1x30",
                f"trimtab_trainer_steps_total{OF_A_JOB}": "0+5x30",
            },
            {
                f"trimtab_trainer_dropped_steps_total{OF_A_JOB}": "0 1x29",
                f"trimtab_trainer_steps_total{OF_A_JOB}": "0+5x30",
            },
            {"severity": "warning", "namespace": "team", "trimtab_dev_job_name": "digits"},
            {"summary": "More than a tenth of the steps of team/digits are dropped: values are not finite."},
        ),
        (
            "TrimtabStepsSlowerThanPredicted",
            {
                f"trimtab_trainer_measured_step_seconds{OF_A_JOB}": "0.5x30",
                f"trimtab_trainer_predicted_step_seconds{OF_A_JOB}": "0.2x30",
            },
            {
                f"trimtab_trainer_measured_step_seconds{OF_A_JOB}": "0.25x30",
                f"trimtab_trainer_predicted_step_seconds{OF_A_JOB}": "0.2x30",
            },
            {"severity": "info", "namespace": "team", "trimtab_dev_job_name": "digits"},
            {
                "summary": "Steps of team/digits take half as long again as its plan promised.",
                "description": "0.5 s after the last change of plan. The report of the run shows each decision beside"
                " what was measured.",
            },
        ),
        (
            "TrimtabNetworkNotMeasured",
            {f"trimtab_network_stale{OF_A_JOB}": "1x30"},
            {f"trimtab_network_stale{OF_A_JOB}": "0x30"},
            {"severity": "warning", "namespace": "team", "trimtab_dev_job_name": "digits"},
            {"summary": "The network of team/digits is no longer measured."},
        ),
    ],
)
def test_an_alert_tells_when_it_should_and_only_then_whether_or_not_there_is_a_standby(
    tmp_path, standby, alert, bad, good, labels, says
):
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    (annotations,) = [rule["annotations"] for rule in rules if rule["alert"] == alert]
    told = [{"exp_labels": labels, "exp_annotations": annotations | says}]

    def case(series, expected):
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [{"eval_time": "25m", "alertname": alert, "exp_alerts": expected}],
        }

    test = {"rule_files": [os.fspath(ALERTS)], "evaluation_interval": "1m"}
    test["tests"] = [case({**bad, **also}, told) for also in ({}, standby)]
    test["tests"] += [case({**good, **also}, []) for also in ({}, standby)]
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    check("test", "rules", "test.yaml", cwd=tmp_path)


@pytest.mark.helm
def test_what_is_scraped_is_there(helm):
    objects = helm.template("metrics.serviceMonitor.enabled=true", "metrics.podMonitor.enabled=true")
    by_kind = {each["kind"]: each for each in objects if each["kind"] in ("ServiceMonitor", "Service", "PodMonitor")}
    (endpoint,) = by_kind["ServiceMonitor"]["spec"]["endpoints"]
    (port,) = [each for each in by_kind["Service"]["spec"]["ports"] if each["name"] == endpoint["port"]]
    (operator,) = [each["spec"]["template"] for each in objects if each["kind"] == "Deployment"]
    (container,) = operator["spec"]["containers"]
    assert port["targetPort"] in {each["name"] for each in container["ports"]}
    assert by_kind["Service"]["spec"]["selector"].items() <= operator["metadata"]["labels"].items()

    settings = Settings("trimtab", None, "netmon:1", "monitoring", 1, 0, "me")
    pod = pod_template(load_training_job(EXAMPLE), "team", 0, settings)
    of_monitor, of_run = by_kind["PodMonitor"]["spec"]["podMetricsEndpoints"]
    containers = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
    ports = [port for each in containers for port in each["ports"]]
    assert {"name": of_monitor["port"], "containerPort": MONITOR_METRICS_PORT} in ports
    assert {"name": of_run["port"], "containerPort": TRAINER_METRICS_PORT} in ports
    (of_rank_0,) = of_run["relabelings"]
    assert (of_rank_0["regex"], of_rank_0["action"]) == ("0", "keep")
    (chosen,) = by_kind["PodMonitor"]["spec"]["selector"]["matchExpressions"]
    assert chosen["key"] in pod["metadata"]["labels"]
