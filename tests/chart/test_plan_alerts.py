"""Alerts that tell of plans, brought about by two real runs.

In one the network flaps between two that ask for different plans, and the controller follows, as it should. In the
other a Static plan on a fast network spends more on selecting than its exchange saves; then its host becomes slow.
"""

import json
import signal
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import dashboards
import prometheus
import pytest
import yaml
from alerts_of_faults import DOES_NOT_PAY, FLAPS, IS_SLOWER, OF_PLANS
from programs import Program, wait_until
from trimtab.launch.environment.ports import free_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.namespaces,
    pytest.mark.prometheus,
    pytest.mark.timeout(900),
    pytest.mark.full,
]

SCRIPT = Path(__file__).parent / "small_training.py"
#: No false alarm: what a plan promises on the fast network, the mean of both does not keep. It comes and goes.
BY_TURNS = ("flapping", IS_SLOWER[1])
#: Dense is the plan for the first, and none but small ratios for the second.
NETWORK = """
apiVersion: trimtab.dev/v1alpha1
kind: Network
phases:
  - {duration: 5s, latency: 1ms, bandwidth: 1Gbps}
  - {duration: 5s, latency: 20ms, bandwidth: 20Mbps}
repeat: true
"""
JOB = """
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata: {name: NAME}
spec:
  workers: 2
  activeDeadlineSeconds: 800
  network: {probeInterval: 1s, probeBudget: 0.5}
  communication: COMMUNICATION
  template: {spec: {containers: [{name: trainer, command: [python, 'SCRIPT', DIRECTORY, FLAGS]}]}}
"""
COMMUNICATION = {
    "flapping": "{localSteps: {max: 0}, trials: {budget: 0}}",
    "static": "{policy: Static, plan: 0.1/all-gather/sparsifier=mstopk}",
}
#: Of each step some time needs no processor, so that computing is steady beside the other run. The larger model takes
#: ten milliseconds longer to select from than to send whole.
FLAGS = {"flapping": "--rest=0.02", "static": "--rest=0.03, --width=1000"}
SETTINGS = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}}


@pytest.fixture
def runs(tmp_path):
    """The launchers by name, and the port of a Prometheus that scrapes both runs."""
    (tmp_path / "network.yaml").write_text(NETWORK)
    *ports, of_prometheus = free_ports(3)
    launchers, others, jobs = {}, [], []
    try:
        for (name, communication), port in zip(COMMUNICATION.items(), ports, strict=True):
            job = JOB.replace("NAME", name).replace("COMMUNICATION", communication).replace("SCRIPT", str(SCRIPT))
            run, faults = tmp_path / name, tmp_path / f"{name}-faults"
            faults.mkdir()
            (tmp_path / f"{name}.yaml").write_text(job.replace("FLAGS", FLAGS[name]).replace("DIRECTORY", str(faults)))
            argv = [sys.executable, "-m", "trimtab", "run", tmp_path / f"{name}.yaml", "--out", run]
            argv += ["--network", tmp_path / "network.yaml"] if name == "flapping" else []
            launchers[name] = Program(argv, tmp_path / f"{name}.log")
            wait_until((run / "started").exists, launchers[name].last_lines, seconds=240)
            serve = [sys.executable, "-m", "trimtab", "metrics", run, f"--port={port}"]
            others.append(Program(serve, tmp_path / f"{name}-metrics.log"))
            targets = {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "n", "trimtab_dev_job_name": name}}
            jobs.append({"job_name": name, "static_configs": [targets]})
        rules = dashboards.fast_alerts({FLAPS[1]}, windows=False) + dashboards.fast_alerts(OF_PLANS - {FLAPS[1]})
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "fast", "rules": rules}]}))
        settings = {**SETTINGS, "scrape_configs": jobs, "rule_files": [str(tmp_path / "rules.yaml")]}
        (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(settings))
        flags = [f"--config.file={tmp_path / 'prometheus.yaml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
        flags += [f"--web.listen-address=127.0.0.1:{of_prometheus}"]
        others.append(Program([prometheus.obtain("prometheus"), *flags], tmp_path / "prometheus.log"))
        yield launchers, of_prometheus, tmp_path / "static-faults"
    finally:
        for each in others:
            each.kill()
        for each in launchers.values():
            each.process.send_signal(signal.SIGINT)
        for each in launchers.values():
            each.process.wait(60)


def test_a_plan_that_flaps_does_not_pay_or_is_slower_than_promised_is_told_of_and_no_other(runs):
    launchers, port, faults = runs
    query = urllib.parse.urlencode({"query": 'ALERTS{alertstate="firing"}'})
    told = set()

    def firing():
        for each in launchers.values():
            assert each.is_running, each.last_lines()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as answer:
                found = [each["metric"] for each in json.load(answer)["data"]["result"]]
        except OSError:
            return set()
        now = {(each["trimtab_dev_job_name"], each["alertname"]) for each in found} - {BY_TURNS}
        told.update(now)
        return now

    def are_told_of(expected, beside=frozenset()):
        wait_until(
            lambda: firing() - beside == expected, lambda: f"these alone tell: {firing()}", seconds=400, interval=1
        )
        assert told <= expected | {DOES_NOT_PAY}, "no other came and went"

    are_told_of({FLAPS, DOES_NOT_PAY})
    (faults / "slow").touch()
    # What compression costs more than it saves may or may not be a twentieth of the longer steps.
    are_told_of({FLAPS, IS_SLOWER}, beside={DOES_NOT_PAY})
