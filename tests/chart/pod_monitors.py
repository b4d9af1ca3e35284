"""What a PodMonitor of the Prometheus operator selects of a cluster's pods, and a Prometheus that scrapes it.

The Prometheus operator is another project's, and no cluster of the tests has it. So a PodMonitor is turned into the
configuration that it would make of it, of the fields that the chart uses; others are refused. Debian's Prometheus
cannot ask an API server either. It gets the pods with the labels that it would find there, and selects among them by
itself.
"""

import json
import re
import urllib.parse
import urllib.request
from contextlib import contextmanager

import prometheus
import yaml
from programs import Program, wait_until
from trimtab.launch.environment.ports import free_ports

_OF_MONITOR = {"selector", "namespaceSelector", "podTargetLabels", "podMetricsEndpoints"}
_OF_ENDPOINT = {"port", "path", "interval", "honorLabels", "relabelings"}
#: What the chart brings for the Prometheus operator, by plural name.
_KINDS = {"podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule"}
_GROUP = "monitoring.coreos.com"
_META = "__meta_kubernetes_pod_"


def definitions():
    """CustomResourceDefinitions that let a cluster keep what the chart brings; whatever it says is taken."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{_GROUP}"},
            "spec": {
                "group": _GROUP,
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind},
                "versions": [version],
            },
        }
        for plural, kind in _KINDS.items()
    ]


def scrape_configs(monitor, pods, interval="1s"):
    """One for each endpoint of the PodMonitor, which asks at ``interval``; ``pods`` are the whole cluster's."""
    spec, own = monitor["spec"], monitor["metadata"]
    assert set(spec) <= _OF_MONITOR, set(spec) - _OF_MONITOR
    selector = spec.get("namespaceSelector", {})
    assert set(selector) <= {"any", "matchNames"}
    names = selector.get("matchNames", [own["namespace"]])
    chosen = [pod for pod in pods if selector.get("any") or pod["metadata"]["namespace"] in names]
    found = [port for pod in chosen for port in _ports(pod)]
    return [
        _config(f"{own['namespace']}/{own['name']}/{number}", spec, endpoint, found, interval)
        for number, endpoint in enumerate(spec["podMetricsEndpoints"])
    ]


def _ports(pod):
    """Each port of a pod that has an address, with labels as Prometheus finds it (kubernetes_sd_configs, role pod)."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    labels = {"__meta_kubernetes_namespace": metadata["namespace"], f"{_META}name": metadata["name"]}
    labels[f"{_META}phase"] = status["phase"]
    for name, value in metadata.get("labels", {}).items():
        labels |= {f"{_META}label_{_plain(name)}": value, f"{_META}labelpresent_{_plain(name)}": "true"}
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        for port in container.get("ports", ()) if "podIP" in status else ():
            named = {f"{_META}container_name": container["name"], f"{_META}container_port_name": port.get("name", "")}
            yield {"targets": [f"{status['podIP']}:{port['containerPort']}"], "labels": labels | named}


def _config(name, spec, endpoint, found, interval):
    assert set(endpoint) <= _OF_ENDPOINT, set(endpoint) - _OF_ENDPOINT
    relabeling = [
        {"source_labels": [f"{_META}phase"], "regex": "(Failed|Succeeded)", "action": "drop"},
        *_selected(spec["selector"]),
        {"source_labels": [f"{_META}container_port_name"], "regex": endpoint["port"], "action": "keep"},
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": [f"{_META}name"], "target_label": "pod"},
        *(
            {"source_labels": [f"{_META}label_{_plain(label)}"], "regex": "(.+)", "target_label": _plain(label)}
            for label in spec.get("podTargetLabels", ())
        ),
        *({_snake(key): value for key, value in each.items()} for each in endpoint.get("relabelings", ())),
    ]
    return {
        "job_name": name,
        "metrics_path": endpoint["path"],
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "honor_labels": endpoint.get("honorLabels", False),
        "static_configs": found,
        "relabel_configs": relabeling,
    }


def _selected(selector):
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for label, value in selector.get("matchLabels", {}).items():
        yield {"source_labels": [f"{_META}label_{_plain(label)}"], "regex": re.escape(value), "action": "keep"}
    for each in selector.get("matchExpressions", ()):
        assert each["operator"] == "Exists", each
        present = f"{_META}labelpresent_{_plain(each['key'])}"
        yield {"source_labels": [present], "regex": "true", "action": "keep"}


def _plain(label):
    return re.sub("[^a-zA-Z0-9_]", "_", label)


def _snake(name):
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


@contextmanager
def scraping(configs, directory, address="127.0.0.1", enter=()):
    """A Prometheus that scrapes so; the URL where it answers.

    ``enter``: what a command begins with that runs where the pods are reached; ``address``: one of there.
    """
    (port,) = free_ports(1)
    (directory / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": configs}))
    flags = [f"--config.file={directory / 'prometheus.yaml'}", f"--storage.tsdb.path={directory / 'data'}"]
    command = [*enter, prometheus.obtain("prometheus"), *flags, f"--web.listen-address={address}:{port}"]
    program = Program(command, directory / "prometheus.log")
    url = f"http://{address}:{port}"

    def answers():
        assert program.is_running, program.last_lines()
        try:
            targets(url)
        except OSError:
            return False
        return True

    try:
        wait_until(answers, "Prometheus answers")
        yield url
    finally:
        program.kill()


def targets(url):
    """What the Prometheus at the URL scrapes: what went wrong by target's URL, empty where nothing did."""
    active = _asked(f"{url}/api/v1/targets?state=active")["activeTargets"]
    return {each["scrapeUrl"]: "" if each["health"] == "up" else each["lastError"] or "not yet" for each in active}


def result(url, query):
    """What the query finds, as Prometheus tells it."""
    return _asked(f"{url}/api/v1/query?" + urllib.parse.urlencode({"query": query}))["result"]


def values(url, query):
    """What the query finds: values by the labels namespace and trimtab_dev_job_name."""
    labels = ("namespace", "trimtab_dev_job_name")
    return {
        tuple(each["metric"].get(label, "") for label in labels): float(each["value"][1]) for each in result(url, query)
    }


def _asked(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]
