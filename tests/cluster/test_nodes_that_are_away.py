"""What a job says while a node of its pods is away: the node is there, and nobody on it looks after pods."""

from __future__ import annotations

import sys

import pytest
from programs import wait_until
from trimtab_operator.cluster.resources import PODS, Resource
from workbench import Operators

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

NODES = Resource("v1", "Node", "nodes")
#: The operator, which tells of a pod that does not end as soon as a test would.
IMPATIENT = """
from trimtab_operator import decide, main, report

report._LATE_SECONDS, decide._WHILE_ENDING_SECONDS = 1.0, 0.5
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


def on(node):
    pod = {"containers": [{"name": "trainer", "image": "trainer.test/trainer:1", "command": ["python", "t.py"]}]}
    return {"template": {"spec": {**pod, "nodeName": node, "terminationGracePeriodSeconds": 1}}}


def test_ranks_that_wait_for_a_pod_on_a_lost_node_say_so_and_restart_once_it_is_gone(namespace, impatient, ghost):
    namespace.create("digits", **on(ghost))
    first, second = namespace.wait_for_pods("digits")
    namespace.play_running(first, second)
    namespace.play_training("digits")
    namespace.play_failed(first, message="out of luck")
    reason = lambda: namespace.condition("digits", "Ready").get("reason")  # noqa: E731
    wait_until(lambda: reason() == "PodDoesNotEnd", "it says what it waits for")
    message = namespace.status("digits")["message"]
    assert f"the pod of worker 1 on node {ghost} was deleted and has not ended" in message
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
