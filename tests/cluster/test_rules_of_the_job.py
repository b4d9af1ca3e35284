"""What Kubernetes' own Job controller makes of the Job's rules; the operator has no hand in it here."""

from __future__ import annotations

import pytest
from trimtab_api.trainingjob import TrainingJob
from trimtab_operator.children.job import job_manifest
from trimtab_operator.kube.resources import JOBS, PODS
from trimtab_operator.main import read_settings
from workbench import Workbench, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]


@pytest.fixture
def pods(namespace):
    """The two pods of a Job as the operator would make it, of a TrainingJob that no operator looks after."""
    namespace.create("digits", managedBy="example.com/other")
    resource = namespace.job("digits")
    settings = read_settings(["--namespace", "trimtab-system", "--netmon-image", "netmon.test/netmon:1"])
    job = TrainingJob.model_validate(resource)
    of = (job, namespace.namespace, resource["metadata"]["uid"])
    namespace.api.create(JOBS, job_manifest(*of, 0, {}, settings))
    return namespace.wait_for_pods("digits")


def conditions(bench: Workbench) -> set[str]:
    status = bench.child("digits")["status"]
    return {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}


def uids(bench: Workbench) -> list[str]:
    return [each["metadata"]["uid"] for each in bench.pods("digits")]


def test_a_pod_that_is_disrupted_does_not_fail_the_job(namespace, pods):
    namespace.play_running(*pods)
    namespace.play_disrupted(pods[0])
    eventually(lambda: len(uids(namespace)) == 3, "another pod is made for that worker")
    replaced = [each for each in namespace.pods("digits") if each["metadata"]["uid"] != pods[0]["metadata"]["uid"]]
    indices = [each["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for each in replaced]
    assert indices == ["0", "1"]
    assert conditions(namespace) == set()


def test_a_pod_that_fails_ends_the_job_and_its_other_pods(namespace, pods):
    namespace.play_running(*pods)
    namespace.play_failed(pods[0])
    eventually(lambda: "Failed" in conditions(namespace), "the Job has failed")
    assert [each["status"]["phase"] for each in namespace.pods("digits")] == ["Failed"]


def test_a_pod_that_is_still_ending_is_not_replaced(namespace, pods):
    """Two processes would be the same rank. A pod that has a node ends in its own time."""
    victim = pods[0]["metadata"]
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": victim["name"]}}
    target = {"apiVersion": "v1", "kind": "Node", "name": "elsewhere"}
    path = PODS.path(namespace.namespace, victim["name"], "binding")
    namespace.api.send("POST", path, body={**binding, "target": target})
    namespace.play_running(*pods)
    namespace.control_plane.kubectl("delete", "pod", victim["name"], "-n", namespace.namespace, "--wait=false")
    eventually(lambda: namespace.child("digits")["status"].get("terminating") == 1, "the Job controller has seen it")
    assert len(uids(namespace)) == 2
    namespace.play_disrupted(pods[0])
    eventually(lambda: set(uids(namespace)) - {each["metadata"]["uid"] for each in pods}, "now it is replaced")
