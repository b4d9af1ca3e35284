"""The operator's alerts, brought about: a real operator whose API server has faults, scraped by a real Prometheus."""

import json
import sys
import time
import urllib.parse
import urllib.request

import dashboards
import prometheus
import pytest
import yaml
from alerts_of_faults import OF_THE_OPERATOR
from fake_api_server import ApiServer
from programs import Program, wait_until
from trimtab.launch.environment.ports import free_ports
from trimtab_operator.main import LOST_LEADERSHIP

pytestmark = [pytest.mark.slow, pytest.mark.prometheus, pytest.mark.timeout(900), pytest.mark.full]

#: More jobs than threads that look after them, so that some wait once all threads do.
NUM_THREADS, NUM_JOBS = 2, 4
SETTINGS = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}}


class Watched:
    """An operator, its API server, and a Prometheus that scrapes it."""

    def __init__(self, directory):
        self.directory = directory
        self.api_server = ApiServer([f"job-{number}" for number in range(NUM_JOBS)], changes=True)
        (directory / "kubeconfig").write_text(self.api_server.kubeconfig())
        self.port, self.of_prometheus = free_ports(2)
        self.operator = self.start_operator()
        (directory / "rules.yaml").write_text(
            yaml.safe_dump({"groups": [{"name": "fast", "rules": dashboards.fast_alerts(OF_THE_OPERATOR)}]})
        )
        targets = [{"targets": [f"127.0.0.1:{self.port}"]}]
        scraped = {"scrape_configs": [{"job_name": "operator", "static_configs": targets}]}
        settings = {**SETTINGS, **scraped, "rule_files": [str(directory / "rules.yaml")]}
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(settings))
        flags = [f"--config.file={directory / 'prometheus.yaml'}", f"--storage.tsdb.path={directory / 'data'}"]
        flags += [f"--web.listen-address=127.0.0.1:{self.of_prometheus}"]
        self.prometheus = Program([prometheus.obtain("prometheus"), *flags], directory / "prometheus.log")
        self.told = set()
        """Alerts that were ever seen firing since it was emptied."""

    def start_operator(self):
        argv = ["-m", "trimtab_operator.main", "--netmon-image=netmon:1", f"--workers={NUM_THREADS}"]
        environment = {"KUBECONFIG": str(self.directory / "kubeconfig")}
        return Program([sys.executable, *argv, f"--port={self.port}"], self.directory / "operator.log", environment)

    def ask(self, query):
        assert self.prometheus.is_running, self.prometheus.last_lines()
        asked = urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.of_prometheus}/api/v1/query?{asked}", timeout=10
            ) as it:
                return json.load(it)["data"]["result"]
        except OSError:
            return []

    def value(self, query):
        """Of a query whose answer is one number; 0 where there is none."""
        found = self.ask(query)
        return float(found[0]["value"][1]) if found else 0.0

    def firing(self):
        now = {each["metric"]["alertname"] for each in self.ask('ALERTS{alertstate="firing"}')}
        self.told |= now
        return now

    def wait_for(self, *alerts):
        """Until these alone tell; no other may have told meanwhile. Forgets what has told."""
        wait_until(
            lambda: self.firing() == set(alerts),
            lambda: f"{alerts} alone tell, not {self.firing()}: {self.operator.last_lines()}",
            180,
            interval=1,
        )
        assert self.told <= set(alerts), f"{self.told} told before {alerts} did"

    def is_well_again(self):
        """Until none tells."""
        wait_until(lambda: not self.firing(), lambda: f"none tells once all is well: {self.firing()}", 180, interval=1)
        self.told.clear()


@pytest.fixture
def watched(tmp_path):
    made = Watched(tmp_path)
    yield made
    made.prometheus.kill()
    made.operator.kill()
    made.api_server.shutdown()


def test_each_fault_of_an_operators_api_server_brings_its_alert_about_and_no_other(watched):
    enough = "sum(increase(trimtab_operator_reconciles_total[10s])) > 0 and sum(trimtab_operator_leader) == 1"
    wait_until(lambda: watched.ask(enough), lambda: f"it works: {watched.operator.last_lines()}", 120, interval=1)
    watched.is_well_again()  # no process led before the election

    watched.api_server.refuses = True
    watched.wait_for("TrimtabOperatorKeepsFailing")
    watched.api_server.refuses = False
    watched.is_well_again()

    watched.api_server.trickles = True  # as a broken proxy does: no request ends, and none fails
    watched.wait_for("TrimtabOperatorDoesNotReconcile", "TrimtabOperatorFallsBehind")
    watched.api_server.trickles = False
    watched.is_well_again()

    watched.api_server.has_other_leader = True
    assert watched.operator.process.wait(60) == LOST_LEADERSHIP
    ended = time.time()  # a scrape from before it is of the one that led
    watched.operator = watched.start_operator()
    scraped = f"up == 1 and timestamp(up) > {ended}"
    wait_until(lambda: watched.ask(scraped), lambda: watched.operator.last_lines(), 60, interval=1)
    watched.wait_for("TrimtabOperatorHasNoLeader")
    assert watched.value("sum(up)") == 1, "not for want of a scrape: it stands by"
    watched.api_server.has_other_leader = False
    wait_until(lambda: watched.value("sum(trimtab_operator_leader)") == 1, lambda: watched.operator.last_lines(), 90)
    watched.is_well_again()
