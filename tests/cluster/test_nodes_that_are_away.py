"""What becomes of a job while a node of its pods is away: nobody on it looks after pods."""

from __future__ import annotations

import sys

import pytest
from programs import wait_until
from trimtab_operator.kube.resources import PODS, Resource
from workbench import Operators

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

NODES = Resource("v1", "Node", "nodes")
#: The operator, which tells of a pod that does not end as soon as a test would.
IMPATIENT = """
from trimtab_operator import main
from trimtab_operator.decisions import decide
from trimtab_operator.reconcile import nodes
from trimtab_operator.decisions import worker_problems as workers

workers._LATE_SECONDS, decide._WHILE_ENDING_SECONDS, nodes._FRESH_SECONDS = 1.0, 0.5, 0.0
main.main()
"""


@pytest.fixture
def ghost(namespace):
    """A node on which no kubelet runs."""
    name = f"ghost-of-{namespace.namespace}"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    namespace.api.send("POST", NODES.path(None), body=node)
    yield name
    namespace.api.send("DELETE", NODES.path(None, name))


@pytest.fixture
def impatient(control_plane, namespace, tmp_path):
    running = Operators(control_plane, tmp_path)
    flags = ("--namespace", namespace.namespace, "--watch-namespace", namespace.namespace)
    running.start(*flags, program=(sys.executable, "-c", IMPATIENT))
    yield
    running.stop()


def tell_ready(namespace, node, status):
    """As the node's kubelet would, or the node controller in its absence."""
    change = {"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Played"}]}}
    path = NODES.path(None, node, "status")
    namespace.api.send("PATCH", path, body=change, content_type="application/merge-patch+json")


def on(node, **spec):
    pod = {"containers": [{"name": "trainer", "image": "trainer.test/trainer:1", "command": ["python", "t.py"]}]}
    return {"template": {"spec": {**pod, "nodeName": node, "terminationGracePeriodSeconds": 1}}, **spec}


LOST = "CommunicationError: rank 1: has not answered for 60 s"


def test_a_node_that_dies_does_not_count_and_the_next_attempt_does_not_wait_for_its_pod(namespace, impatient, ghost):
    """The peers of its worker fail first, and the pod on it stays for as long as the node does."""
    tell_ready(namespace, ghost, "True")  # before any operator looks at it
    namespace.create("digits", **on(ghost, maxRestarts=0))
    first, second = namespace.wait_for_pods("digits")
    namespace.play_running(first, second)
    namespace.play_training("digits")
    namespace.play_failed(first, message=LOST)
    wait_until(lambda: namespace.pods("digits")[-1]["metadata"].get("deletionTimestamp"), "its pods are to end")
    assert namespace.status("digits")["state"] == "Running", "the node may yet be found lost"
    tell_ready(namespace, ghost, "Unknown")
    again = namespace.wait_for_pods("digits", attempt=1)
    status = namespace.status("digits")
    assert (status["restarts"], status["disruptions"]) == (1, 1)
    assert status["lastRestartReason"] == f"worker 1 was lost with node {ghost}, which is gone or cannot be reached"
    assert second["metadata"]["uid"] in {each["metadata"]["uid"] for each in namespace.pods("digits", attempt=0)}
    assert {each["spec"]["hostname"] for each in again} == {"digits-r1-0", "digits-r1-1"}
    namespace.play_running(*again)
    namespace.play_training("digits")


def test_a_pod_that_somebody_deletes_does_not_count(namespace, impatient, ghost):
    tell_ready(namespace, ghost, "True")
    namespace.create("digits", **on(ghost, maxRestarts=0))
    pods = namespace.wait_for_pods("digits")
    namespace.play_running(*pods)
    namespace.play_training("digits")
    name = pods[1]["metadata"]["name"]
    namespace.control_plane.kubectl("delete", "pod", name, "-n", namespace.namespace, "--wait=false")
    wait_until(lambda: namespace.status("digits").get("restarts") == 1, "all ranks restart")
    status = namespace.status("digits")
    assert status["disruptions"] == 1
    assert status["lastRestartReason"] == "the pod of worker 1 was deleted before it ended, by whom is unknown"


def test_ranks_that_wait_for_a_pod_that_does_not_end_say_so_and_restart_once_it_is_gone(namespace, impatient, ghost):
    tell_ready(namespace, ghost, "True")
    namespace.create("digits", **on(ghost))
    first, second = namespace.wait_for_pods("digits")
    namespace.play_running(first, second)
    namespace.play_training("digits")
    namespace.play_failed(first, message="out of luck")
    cause = f"the pod of worker 1 on node {ghost} was deleted and has not ended"
    reason = lambda: namespace.condition("digits", "Ready").get("reason")  # noqa: E731
    wait_until(lambda: reason() == "PodDoesNotEnd", "it says that it waits for a pod")
    message = namespace.status("digits")["message"]
    assert cause in message
    assert "delete the Node, or the pod with --force" in message
    assert namespace.events("digits")["PodDoesNotEnd"] == message
    path = PODS.path(namespace.namespace, second["metadata"]["name"])
    namespace.api.send("DELETE", path, body={"gracePeriodSeconds": 0})
    namespace.wait_for_pods("digits", attempt=1)


def test_workers_whose_node_is_away_are_not_said_to_train(namespace, impatient, ghost):
    namespace.create("digits", **on(ghost))
    pods = namespace.wait_for_pods("digits")
    namespace.play_running(*pods)
    namespace.play_training("digits")
    namespace.play_running(pods[1], is_ready=False)
    ready = lambda: namespace.condition("digits", "Ready")  # noqa: E731
    wait_until(lambda: ready().get("reason") == "WorkersNotReady", "it says that a worker is not ready")
    assert ready()["message"].startswith(f"worker 1 (on {ghost}) is not ready")
    namespace.play_running(pods[1])
    wait_until(lambda: ready().get("status") == "True", "it is well again")
