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

import promtool
import pytest
import yaml
from helm_chart import CHART
from programs import Program, wait_until
from trimtab_api.names import MONITOR_METRICS_PORT
from trimtab_api.trainingjob import load_training_job
from trimtab_operator.children.pod import pod_template
from trimtab_operator.settings import Settings
from trimtab_operator.work_queue import WorkQueue

ALERTS = CHART / "files/alerts.yaml"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
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


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """What a real operator that does not lead and a real monitor export."""
    directory = tmp_path_factory.mktemp("scraped")
    (directory / "kubeconfig").write_text(json.dumps(NOWHERE))
    own, of_operator, of_monitor = free_ports(3)
    commands = {
        of_operator: ["-m", "trimtab_operator.main", "--netmon-image=netmon:1", f"--port={of_operator}"],
        of_monitor: ["-m", "trimtab_netmon.main", "serve", "--rank=0", f"--peers=localhost:{own}", "--interface=lo"],
    }
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
    return dict(zip(("operator", "monitor"), texts, strict=True))


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


def queries():
    """Every query of every dashboard, its variables filled in."""
    for path in DASHBOARDS:
        for expression in re.findall(r'"expr": ("(?:[^"\\]|\\.)*")', path.read_text()):
            query = json.loads(expression).replace("$namespace", "team").replace("$job", "digits")
            assert "$" not in query, "a variable that is not filled in here"
            yield query


def check(*arguments, cwd=None):
    done = subprocess.run(
        [promtool.obtain(), *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_dashboards_and_alerts_ask_for_metrics_that_are_exported(exported):
    text = ALERTS.read_text() + "".join(path.read_text() for path in DASHBOARDS)
    asked = set(re.findall(r"\btrimtab_(?:network|netmon|operator)_[a-z_]+", text))
    assert asked - exported == set()
    assert len(asked) > 10


@pytest.mark.promtool
def test_prometheus_takes_every_query_and_every_alert(tmp_path):
    records = [
        {"record": "dashboard:query", "expr": query, "labels": {"n": str(n)}} for n, query in enumerate(queries())
    ]
    assert len(records) > 10
    (tmp_path / "dashboards.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": records}]}))
    check("check", "rules", tmp_path / "dashboards.yaml")
    check("check", "rules", ALERTS)


@pytest.mark.promtool
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
    (endpoint,) = by_kind["PodMonitor"]["spec"]["podMetricsEndpoints"]
    ports = [port for each in pod["spec"]["initContainers"] for port in each["ports"]]
    assert {"name": endpoint["port"], "containerPort": MONITOR_METRICS_PORT} in ports
    (chosen,) = by_kind["PodMonitor"]["spec"]["selector"]["matchExpressions"]
    assert chosen["key"] in pod["metadata"]["labels"]
