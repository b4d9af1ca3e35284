"""A real Prometheus scrapes a real run on an emulated network and answers all queries of all dashboards and alerts.

Faults of that run bring alerts about. test_operator_alerts.py brings about the operator's, test_plan_alerts.py those of
plans; test_alerts.py has all of them against series made up for it.

It runs on worker 0's host, as nothing outside of the emulated network reaches the monitors.
"""

import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path

import dashboards
import prometheus
import psutil
import pytest
import yaml
from alerts_of_faults import OF_A_RUN
from programs import Program, wait_until
from trimtab.launch.environment.ports import free_ports
from trimtab_netmon.emulate.emulator import DEVICE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.namespaces,
    pytest.mark.prometheus,
    pytest.mark.timeout(600),
    pytest.mark.full,
]

SCRIPT = Path(__file__).parent / "small_training.py"
OPERATOR = Path(__file__).parent / "operator_of_one_job.py"
WORKERS = 2
#: Slow enough that another plan than dense is worth adopting, and never for long. Never half as wide as it was either.
NETWORK = """
apiVersion: trimtab.dev/v1alpha1
kind: Network
phases:
  - {duration: 8s, latency: 1ms, bandwidth: 100Mbps}
  - {duration: 8s, latency: 20ms, bandwidth: 140Mbps}
repeat: true
"""
JOB = f"""
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata: {{name: {dashboards.JOB}}}
spec:
  workers: {WORKERS}
  activeDeadlineSeconds: 600
  network: {{probeInterval: 1s, probeBudget: 0.5}}
  communication: {{localSteps: {{max: 0}}}}  # of which none are tried
  checkpoint: {{path: DIRECTORY/checkpoints, interval: 1s}}
  template: {{spec: {{containers: [{{name: trainer, command: [python, '{SCRIPT}', DIRECTORY]}}]}}}}
"""
#: A scrape may take as long as the interval, which a busy machine needs.
PROMETHEUS = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}}
#: What worker 0's host sends while its network is at fault.
NARROW = ("tbf", "rate", "5mbit", "burst", "256kb", "latency", "100ms")

#: Asks for all queries in one process on the host where Prometheus is; prints their results as one JSON list.
ASK = """
import json, sys, urllib.parse, urllib.request
port, queries = sys.argv[1], json.load(sys.stdin)
def ask(query):
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return []
print(json.dumps([ask(query) for query in queries]))
"""
#: Queries for these stay without data here, and why: the operator hears rank 0 in its pod alone, on a cluster.
NEED_A_CLUSTER = {
    "trimtab_operator_job_since_progress_seconds": "counts from what rank 0 says in its stream of statuses",
    "trimtab_operator_job_gain_ratio": "is told of what rank 0 says in its stream of statuses",
}


class Host:
    """Worker 0's host of a run: what is started here is on its network."""

    def __init__(self, launcher, directory):
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        (self.namespace,) = [each for each in listed.split() if f"-{launcher.pid}-" in each and each.endswith("-0")]
        self.directory = directory

    def command(self, *argv):
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "--", *map(str, argv)]

    def start(self, name, *argv, environment=None):
        return Program(self.command(*argv), self.directory / f"{name}.log", environment)


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Puts queries to a Prometheus that scrapes a run and an operator; returns the result of each."""
    directory = tmp_path_factory.mktemp("prometheus")
    (directory / "job.yaml").write_text(JOB.replace("DIRECTORY", str(directory)))
    (directory / "network.yaml").write_text(NETWORK)
    (directory / "stalled").touch()  # until Prometheus looks: the only change of plan may be the warm-up's
    of_run, of_operator, of_prometheus = free_ports(3)
    run = directory / "run"
    argv = ["-m", "trimtab", "run", directory / "job.yaml", "--network", directory / "network.yaml", "--out", run]
    programs = [Program([sys.executable, *argv, f"--metrics-port={of_run}"], directory / "run.log")]
    launcher = programs[0]
    try:
        wait_until((run / "logs/rank-0.log").exists, lambda: f"trainers start: {launcher.last_lines()}")
        host = Host(launcher, directory)
        monitors = [f"10.77.0.{worker + 1}:{of_run + 1 + worker}" for worker in range(WORKERS)]
        job = {"namespace": dashboards.NAMESPACE, "trimtab_dev_job_name": dashboards.JOB}
        targets = {
            "job": [{"targets": [f"127.0.0.1:{of_run}", *monitors], "labels": job}],
            "operator": [{"targets": [f"127.0.0.1:{of_operator}"]}],
        }
        jobs = [{"job_name": name, "static_configs": each} for name, each in targets.items()]
        (directory / "fast.yaml").write_text(
            yaml.safe_dump({"groups": [{"name": "fast", "rules": dashboards.fast_alerts(OF_A_RUN)}]})
        )
        rules = [str(dashboards.ALERTS), str(directory / "fast.yaml")]
        (directory / "prometheus.yaml").write_text(
            yaml.safe_dump({**PROMETHEUS, "scrape_configs": jobs, "rule_files": rules})
        )
        flags = [f"--config.file={directory / 'prometheus.yaml'}", f"--storage.tsdb.path={directory / 'data'}"]
        programs += [
            host.start("metrics", sys.executable, "-m", "trimtab", "metrics", run, f"--port={of_run}"),
            host.start(
                "operator",
                *(sys.executable, OPERATOR, of_operator, directory),
                environment={"KUBECONFIG": str(directory / "kubeconfig")},
            ),
            host.start(
                "prometheus",
                *(prometheus.obtain("prometheus"), *flags, f"--web.listen-address=127.0.0.1:{of_prometheus}"),
            ),
        ]

        def ask(queries):
            for each in programs:
                assert each.is_running, each.last_lines()
            argv = host.command(sys.executable, "-c", ASK, of_prometheus)
            done = subprocess.run(
                argv, input=json.dumps(queries), capture_output=True, text=True, timeout=60, check=True
            )
            return json.loads(done.stdout)

        ask.run, ask.directory, ask.host, ask.programs = run, directory, host, programs
        wait_until((run / "started").exists, lambda: f"training starts: {launcher.last_lines()}", seconds=240)
        wait_until(lambda: all(ask(["trimtab_trainer_plan_changes_total"])), "Prometheus scrapes the trainer")
        (directory / "stalled").unlink()
        yield ask
    finally:
        for each in reversed(programs[1:]):
            each.kill()
        launcher.process.send_signal(signal.SIGINT)
        launcher.process.wait(60)


def needs_a_cluster(query):
    return any(metric in query.text for metric in NEED_A_CLUSTER)


def test_every_panel_shows_something_of_a_run_but_for_those_that_need_a_cluster(ask):
    queries = [each for each in dashboards.dashboard_queries() if not needs_a_cluster(each)]
    found = {}

    def are_answered():
        pending = [each for each in queries if not found.get(each)]
        found.update(zip(pending, ask([each.text for each in pending]), strict=True))
        return all(found.values())

    wait_until(
        are_answered, lambda: f"without data: {[each for each in found if not found[each]]}", seconds=90, interval=1
    )
    assert {query: result for query, result in found.items() if isinstance(result, str)} == {}
    assert {query.dashboard for query in queries} == {"fleet", "network", "training"}


def test_nothing_is_said_to_need_a_cluster_that_does_not(ask):
    queries = [each.text for each in dashboards.dashboard_queries() if needs_a_cluster(each)]
    assert len(queries) == len(NEED_A_CLUSTER)
    assert ask(queries) == [[] for _ in queries]


def test_the_run_keeps_its_links_for_the_report(ask):
    def measured():
        links = json.loads((ask.run / "links.json").read_text())["links"] if (ask.run / "links.json").exists() else []
        return {(each["source"], each["target"]) for each in links if each["latency"] and each["bandwidth"]}

    wait_until(lambda: measured() == {(0, 1), (1, 0)}, lambda: f"both links are kept: {measured()}")


def test_of_a_run_that_goes_well_no_alert_tells(ask):
    rules = {rule["alert"]: rule["expr"] for rule in dashboards.alerts()}
    found = dict(zip(rules, ask(list(rules.values())), strict=True))
    assert {name: result for name, result in found.items() if isinstance(result, str)} == {}
    assert ask(['ALERTS{alertstate="firing"}']) == [[]]


def firing(ask):
    """Names of the alerts in fast motion that tell of something now."""
    (found,) = ask(['ALERTS{alertstate="firing",motion="fast"}'])
    return {each["metric"]["alertname"] for each in found}


def monitor_of(ask, worker):
    """Its process."""
    started = psutil.Process(ask.programs[0].pid).children(recursive=True)
    (found,) = [each for each in started if f"trimtab_netmon.main serve --rank {worker} " in " ".join(each.cmdline())]
    return found


def put_a_file_in_place_of(folder):
    """So that nothing can be written in it; whoever writes there may make the folder anew meanwhile."""
    for number in itertools.count():
        folder.rename(folder.with_name(f"aside-{number}"))
        try:
            folder.touch(exist_ok=False)
        except FileExistsError:
            continue
        return


def test_each_fault_of_the_run_brings_its_alert_about_and_no_other(ask):
    told = set()

    def tells(expected):
        now = firing(ask)
        told.update(now)
        return now == expected

    _, _, operator, _ = ask.programs
    hung = [psutil.Process(operator.pid), monitor_of(ask, worker=1)]
    try:
        of_links = {"TrimtabNetworkSlow", "TrimtabLinkDegraded"}
        of_steps = {"TrimtabStepsDropped", "TrimtabCheckpointFailing"}
        subprocess.run(ask.host.command("tc", "qdisc", "add", "dev", DEVICE, "root", *NARROW), check=True)
        wait_until(lambda: tells(of_links), lambda: f"these alone tell: {firing(ask)}", 120, interval=1)
        assert told == of_links, "none came and went"

        subprocess.run(ask.host.command("tc", "qdisc", "delete", "dev", DEVICE, "root"), check=True)
        (ask.directory / "not-finite").touch()
        checkpoints = ask.directory / "checkpoints"
        put_a_file_in_place_of(checkpoints)
        wait_until(lambda: tells(of_steps), lambda: f"these alone tell: {firing(ask)}", 120, interval=1)
        assert told == of_links | of_steps, "none came and went"

        (ask.directory / "not-finite").unlink()
        checkpoints.unlink()
        wait_until(lambda: tells(set()), lambda: f"none tells once all is well: {firing(ask)}", 120, interval=1)
        told.clear()
        (ask.directory / "stalled").touch()
        for process in hung:
            process.suspend()
        of_programs = OF_A_RUN - of_links - of_steps
        wait_until(lambda: tells(of_programs), lambda: f"these alone tell: {firing(ask)}", 120, interval=1)
        assert told == of_programs, "none came and went"
    finally:
        (ask.directory / "stalled").unlink(missing_ok=True)
        for process in hung:
            process.resume()
