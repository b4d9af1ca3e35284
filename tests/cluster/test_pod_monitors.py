"""What the chart's PodMonitors select on a real API server is what a real Prometheus scrapes, and nothing else.

The pods are those that the operator and the Job controller make, and one of the chart's Deployment. A test plays the
kubelet: what the pods would serve is served here, at addresses of the loopback interface which it says they have.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from programs import wait_until

sys.path.append(str(Path(__file__).parents[1] / "chart"))

import binaries
from exporters import write_run
from helm_chart import Helm
from pod_monitors import scrape_configs, scraping, targets, values
from prometheus_client import CollectorRegistry, Gauge, start_http_server
from prometheus_client.registry import Collector
from trimtab.run_files.layout import RunDirectory
from trimtab.status.metrics import RunMetrics
from trimtab_api.names import MONITOR_METRICS_PORT, TRAINER_METRICS_PORT
from trimtab_operator.kube.resources import PODS

pytestmark = [pytest.mark.controlplane, pytest.mark.helm, pytest.mark.prometheus, pytest.mark.timeout(300)]

OPERATOR_PORT = 8080


def address(number):
    """Of the loopback interface, and of this process alone."""
    return f"127.{100 + number}.{os.getpid() // 256 % 256}.{os.getpid() % 256}"


def pod_of(bench, name, template):
    """A pod that no controller has made; returns it."""
    metadata = {"name": name, "namespace": bench.namespace, "labels": template["metadata"].get("labels", {})}
    spec = {**template["spec"], "serviceAccountName": "default", "automountServiceAccountToken": False}
    bench.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return bench.api.get(PODS, bench.namespace, name)


@pytest.fixture
def served():
    """Serves metrics at an address and a port while the test lasts: of a collector, or one gauge of that name."""
    with ExitStack() as stack:

        def serve(number, port, of: Collector | str):
            registry = CollectorRegistry()
            if isinstance(of, str):
                Gauge(of, of, ["namespace"], registry=registry).labels("told-by-itself").set(7)
            else:
                registry.register(of)
            server, _ = start_http_server(port, address(number), registry)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            return f"http://{address(number)}:{port}/metrics"

        yield serve


def test_pod_monitors_select_trainers_monitors_and_the_operator(bench, tmp_path, served):
    bench.create("digits")
    pods = bench.wait_for_pods("digits")
    objects = Helm(binaries.obtain(("helm",))["helm"], tmp_path).template(
        "monitoring.enabled=true", namespace=bench.namespace
    )
    (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
    pods.append(pod_of(bench, "operator", deployment["spec"]["template"]))
    another = {"name": "c", "image": "i", "ports": [{"name": "metrics", "containerPort": 1}]}
    pods.append(pod_of(bench, "another", {"metadata": {}, "spec": {"containers": [another]}}))
    for number, pod in enumerate(pods):
        bench.play_running(pod)
        bench.play_address(pod, address(number))
    write_run(tmp_path / "run")
    served_at = {
        served(0, TRAINER_METRICS_PORT, RunMetrics(RunDirectory(tmp_path / "run"))),
        served(0, MONITOR_METRICS_PORT, "trimtab_network_revision"),
        served(1, MONITOR_METRICS_PORT, "trimtab_network_revision"),
        served(2, OPERATOR_PORT, "trimtab_operator_job_step"),
    }
    monitors = [each for each in objects if each["kind"] == "PodMonitor"]
    configs = [config for each in monitors for config in scrape_configs(each, bench.api.list(PODS, None)["items"])]
    its = (bench.namespace, "digits")
    with scraping(configs, tmp_path) as url:
        wait_until(
            lambda: targets(url) == dict.fromkeys(served_at, ""),
            lambda: f"{sorted(served_at)} are scraped: {targets(url)}",
            interval=0.2,
        )
        assert values(url, "trimtab_trainer_steps_total") == {its: 1}
        assert values(url, "count by (namespace, trimtab_dev_job_name) (trimtab_network_revision)") == {its: 2}
        told = values(url, "trimtab_operator_job_step")
    assert told == {("told-by-itself", ""): 7}, "the operator tells where jobs are"
