"""The node that the other tests here run on is one: it runs pods, names resolve, Services lead to pods."""

import json

import pytest
from control_plane import NODE_NAME
from marks import ON_PODS

pytestmark = [*ON_PODS, pytest.mark.full]


def pod(ground, name, script, **spec):
    container = {"name": "main", "image": ground.images.name("netmon"), "command": ["python3", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec},
    }


def service(name, **spec):
    ports = [{"port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": "server"}, "ports": ports, **spec},
    }


SERVE = """
import http.server, os
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.uname().nodename.encode())
http.server.HTTPServer(("", 8080), Answer).serve_forever()
"""
#: A Service leads to a pod a moment after the pod is ready, so one answer in time is asked for, not the first.
ASK = """
import ssl, time, urllib.request
context = ssl.create_default_context(cafile="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
deadline = time.monotonic() + 30
while True:
    try:
        answer = urllib.request.urlopen({url!r}, timeout=5, context=context if {url!r}[4] == "s" else None)
        break
    except OSError as error:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.2)
print(answer.read().decode())
"""


@pytest.mark.usefixtures("node")
def test_a_pod_runs_to_its_end_and_its_words_are_kept(ground, place):
    place.apply(pod(ground, "speaker", "import os; print('said from', os.uname().nodename)"))
    place.wait("pod/speaker", "jsonpath={.status.phase}=Succeeded")
    assert place.kubectl("logs", "speaker") == "said from speaker\n"


@pytest.mark.usefixtures("node")
def test_pods_are_found_by_name_and_by_service(ground, place):
    server = pod(ground, "server", SERVE, hostname="server", subdomain="headless")
    server["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    place.apply(server, service("virtual"), service("headless", clusterIP="None"))
    place.wait("pod/server", "condition=Ready")
    urls = {
        "by-service": f"http://virtual.{place.namespace}.svc",
        "by-name": f"http://server.headless.{place.namespace}.svc:8080",
        "api": "https://kubernetes.default.svc/readyz",
    }
    place.apply(*(pod(ground, name, ASK.format(url=url)) for name, url in urls.items()))
    for name, answer in (("by-service", "server"), ("by-name", "server"), ("api", "ok")):
        place.wait(f"pod/{name}", "jsonpath={.status.phase}=Succeeded")
        assert place.kubectl("logs", name) == f"{answer}\n"


def test_nothing_beyond_the_machine_is_reached(node):
    assert "default" not in node.run("ip", "route")


@pytest.mark.usefixtures("node")
def test_the_node_says_what_it_has(ground):
    found = json.loads(ground.place("default").kubectl("get", "node", NODE_NAME, "-o", "json"))
    assert found["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    assert int(found["status"]["allocatable"]["cpu"]) >= 1
