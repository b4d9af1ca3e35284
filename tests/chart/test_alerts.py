"""Alerts, by promtool: each tells under its fault and not otherwise, whether or not there is a standby."""

import itertools
import os
import re
import subprocess
from pathlib import Path

import prometheus
import pytest
import yaml
from alerts_of_faults import OF_A_RUN, OF_PLANS, OF_THE_OPERATOR
from dashboards import ALERTS, alerts, dashboard_queries
from trimtab_operator.kube.work_queue import WorkQueue

NEWS_RECONCILES = "trimtab_operator_reconciles_total"
JOB = {"namespace": "team", "trimtab_dev_job_name": "digits"}
OF_A_JOB = '{namespace="team",trimtab_dev_job_name="digits"}'
#: A hundred steps a minute, half of whose time is waiting; of a plan that compresses.
STEPS_OF_HALF_A_SECOND = {
    f"trimtab_trainer_steps_total{OF_A_JOB}": "0+100x30",
    f'trimtab_trainer_step_seconds_total{OF_A_JOB[:-1]},phase="backward"}}': "0+25x30",
    f'trimtab_trainer_step_seconds_total{OF_A_JOB[:-1]},phase="exposed"}}': "0+25x30",
    f'trimtab_trainer_step_seconds_total{OF_A_JOB[:-1]},phase="collective"}}': "0+45x30",
    f"trimtab_trainer_compression_ratio{OF_A_JOB}": "0.01x30",
}

DOES_NOT_PAY = "500ms a step. An Adaptive job should have gone back to dense; a Static one stays as it is."


def of_link(source, target):
    labels = f'{OF_A_JOB[:-1]},source="{source}",target="{target}"}}'
    return f"trimtab_network_link_bandwidth_bytes_per_second{labels}"


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


def check(*arguments, cwd=None):
    done = subprocess.run(
        [prometheus.obtain("promtool"), *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


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


def test_real_faults_bring_every_alert_about():
    in_runs = OF_A_RUN | OF_THE_OPERATOR | OF_PLANS
    assert {rule["alert"] for rule in alerts()} == in_runs


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
            "TrimtabCheckpointFailing",
            {f"trimtab_trainer_checkpoint_failing{OF_A_JOB}": "0x10 1x20"},
            {f"trimtab_trainer_checkpoint_failing{OF_A_JOB}": "0x10 1x4 0x16"},
            {"severity": "warning", **JOB},
            {"summary": "Checkpoints of team/digits cannot be written."},
        ),
        (
            "TrimtabOperatorDoesNotReconcile",
            {
                f"{NEWS_RECONCILES}{{result='ok'}}": "7x30",
                "trimtab_operator_jobs{state='Running'}": "3x30",
                "trimtab_operator_leader": "1x30",
            },
            {
                f"{NEWS_RECONCILES}{{result='ok'}}": "7x12 8x18",
                "trimtab_operator_jobs{state='Running'}": "3x30",
                "trimtab_operator_leader": "1x30",
            },
            {"severity": "critical"},
            {},
        ),
        (
            "TrimtabOperatorDoesNotReconcile",
            {
                f"{NEWS_RECONCILES}{{result='ok'}}": "7x30",
                "trimtab_operator_jobs{state='Pending'}": "1x30",
                "trimtab_operator_leader": "1x30",
            },
            {
                f"{NEWS_RECONCILES}{{result='ok'}}": "7x30",
                "trimtab_operator_jobs{state='Succeeded'}": "3x30",
                "trimtab_operator_leader": "1x30",
            },
            {"severity": "critical"},
            {},
        ),
        (
            "TrimtabLinkDegraded",
            {of_link(0, 1): "125000000x30", of_link(1, 0): "125000000x30", of_link(0, 2): "12500000x30"},
            {of_link(0, 1): "125000000x30", of_link(1, 0): "125000000x30", of_link(0, 2): "70000000x30"},
            {
                "severity": "warning",
                "namespace": "team",
                "trimtab_dev_job_name": "digits",
                "source": "0",
                "target": "2",
            },
            {
                "summary": "The link from worker 0 to worker 2 of team/digits carries less than half of what its other"
                " links do.",
                "description": "It carries 11.92MiB/s, and all ranks wait for it.",
            },
        ),
        (
            "TrimtabCompressionDoesNotPay",
            {**STEPS_OF_HALF_A_SECOND, f"trimtab_trainer_dense_exposed_seconds{OF_A_JOB}": "0.15x30"},
            {**STEPS_OF_HALF_A_SECOND, f"trimtab_trainer_dense_exposed_seconds{OF_A_JOB}": "0.35x30"},
            {"severity": "warning", **JOB},
            {
                "summary": "team/digits compresses its gradients, and its steps take longer than dense's should.",
                "description": DOES_NOT_PAY,
            },
        ),
        (  # other work on the hosts makes computing longer: dense would be slowed down as well
            "TrimtabCompressionDoesNotPay",
            {**STEPS_OF_HALF_A_SECOND, f"trimtab_trainer_dense_exposed_seconds{OF_A_JOB}": "0.15x30"},
            {
                **STEPS_OF_HALF_A_SECOND,
                f'trimtab_trainer_step_seconds_total{OF_A_JOB[:-1]},phase="backward"}}': "0+75x30",
                f'trimtab_trainer_step_seconds_total{OF_A_JOB[:-1]},phase="exposed"}}': "0+15x30",
                f"trimtab_trainer_dense_exposed_seconds{OF_A_JOB}": "0.15x30",
            },
            {"severity": "warning", **JOB},
            {
                "summary": "team/digits compresses its gradients, and its steps take longer than dense's should.",
                "description": DOES_NOT_PAY,
            },
        ),
        (
            "TrimtabCompressionDoesNotPay",
            {**STEPS_OF_HALF_A_SECOND, f"trimtab_trainer_dense_exposed_seconds{OF_A_JOB}": "0.15x30"},
            {
                **STEPS_OF_HALF_A_SECOND,
                f"trimtab_trainer_dense_exposed_seconds{OF_A_JOB}": "0.15x30",
                f"trimtab_trainer_compression_ratio{OF_A_JOB}": "1x30",
            },
            {"severity": "warning", **JOB},
            {
                "summary": "team/digits compresses its gradients, and its steps take longer than dense's should.",
                "description": DOES_NOT_PAY,
            },
        ),
        (
            "TrimtabNetworkSlow",
            {f"trimtab_network_bandwidth_bytes_per_second{OF_A_JOB}": "125000000x10 12500000x20"},
            {f"trimtab_network_bandwidth_bytes_per_second{OF_A_JOB}": "125000000x30"},
            {"severity": "warning", **JOB},
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
            {"severity": "warning", **JOB},
            {
                "summary": "team/digits has taken no training step for a quarter of an hour.",
                "description": "See kubectl describe tj and the log of its worker 0. Stopped at step 40.",
            },
        ),
        (
            "TrimtabPlanFlaps",
            {f"trimtab_trainer_plan_changes_total{OF_A_JOB}": "0+2x30"},
            {f"trimtab_trainer_plan_changes_total{OF_A_JOB}": "0 0 1x8 2x20"},
            {"severity": "warning", **JOB},
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
            {"severity": "warning", **JOB},
            {"summary": "More than a tenth of the steps of team/digits are dropped: values are not finite."},
        ),
        (
            "TrimtabStepsSlowerThanPredicted",
            {**STEPS_OF_HALF_A_SECOND, f"trimtab_trainer_predicted_step_seconds{OF_A_JOB}": "0.3x30"},
            {**STEPS_OF_HALF_A_SECOND, f"trimtab_trainer_predicted_step_seconds{OF_A_JOB}": "0.4x30"},
            {"severity": "info", **JOB},
            {
                "summary": "Steps of team/digits take half as long again as its plan promised.",
                "description": "500ms a step. The report of the run shows each decision beside what was measured.",
            },
        ),
        (
            "TrimtabNetworkNotMeasured",
            {f"trimtab_network_stale{OF_A_JOB}": "1x30"},
            {f"trimtab_network_stale{OF_A_JOB}": "0x30"},
            {"severity": "warning", **JOB},
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


def test_each_alert_has_its_page_and_each_page_its_alert():
    rules = {rule["alert"]: rule["annotations"] for rule in alerts()}
    root = Path(__file__).parents[2]
    for name, annotations in rules.items():
        assert annotations["runbook"] == f"docs/how-to/alerts/{name}.md"
        page = (root / annotations["runbook"]).read_text()
        assert page.startswith(f"# {name}\n")
        assert re.findall("^## (.*)$", page, re.MULTILINE) == ["What it means", "Where to look", "What to do"]
    assert {path.stem for path in (root / "docs/how-to/alerts").glob("*.md")} == set(rules)
