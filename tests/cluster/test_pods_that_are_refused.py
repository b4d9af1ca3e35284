"""Pods that are refused when the Job controller makes them, or cannot mount their volumes: the status says why, and no
longer when they are made, or have.
"""

from __future__ import annotations

import pytest
from trimtab_operator.kube.resources import EVENTS, TRAINING_JOBS, Resource
from workbench import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

QUOTAS = Resource("v1", "ResourceQuota", "resourcequotas")


def quota(bench, number, what="pods"):
    """Let the namespace have so many of something, and wait until that is enforced."""
    head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": bench.namespace}}
    bench.api.apply(QUOTAS, {**head, "spec": {"hard": {what: number}}})
    eventually(
        lambda: bench.api.get(QUOTAS, bench.namespace, "few").get("status", {}).get("hard") == {what: number},
        "the quota is enforced",
    )


def refuse_by_security(bench, level):
    label = f"pod-security.kubernetes.io/enforce={level}"
    done = bench.control_plane.kubectl("label", "--overwrite", "namespace", bench.namespace, label)
    assert done.returncode == 0, done.stderr


def told(bench, words, reason="FailedCreate"):
    """The status, once it says so: half a minute is what users are promised."""

    def says_so():
        return words in bench.status("digits").get("message", "")

    eventually(says_so, f"the status says {words}", 30)
    for kind in ("Ready", "Started"):
        condition = bench.condition("digits", kind)
        assert (condition["status"], condition["reason"]) == ("False", reason)
    eventually(lambda: reason in bench.events("digits"), "an event says so")
    return bench.status("digits")["message"]


POLICIES = Resource("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
BINDINGS = Resource(POLICIES.api_version, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")


@pytest.fixture
def wants_a_team(bench):
    """A policy of the namespace that refuses Jobs without the label team."""
    name = f"teams-{bench.namespace}"
    head = {"apiVersion": POLICIES.api_version, "metadata": {"name": name}}
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    spec = {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}},
            "resourceRules": [rule],
        },
        "validations": [{"expression": "has(object.metadata.labels.team)", "message": "wants a team"}],
    }
    bind = {"policyName": name, "validationActions": ["Deny"]}
    bench.api.send("POST", POLICIES.path(None), body={**head, "kind": POLICIES.kind, "spec": spec})
    bench.api.send("POST", BINDINGS.path(None), body={**head, "kind": BINDINGS.kind, "spec": bind})
    command = ("create", "job", "try", "--image=i", "-n", bench.namespace, "--dry-run=server")
    eventually(lambda: bench.control_plane.kubectl(*command).returncode != 0, "the policy is enforced")
    yield
    for resource in (BINDINGS, POLICIES):
        bench.api.send("DELETE", resource.path(None, name))


def test_what_a_policy_refuses_is_blocked_until_the_job_has_the_label_that_it_wants(bench, wants_a_team):
    bench.create("digits")
    eventually(lambda: "denied request" in bench.status("digits").get("message", ""), "the status says so", 30)
    assert (bench.status("digits")["state"], bench.condition("digits", "Ready")["reason"]) == ("Pending", "Blocked")
    change = {"metadata": {"labels": {"team": "vision"}, "annotations": {"cost": "7"}}}
    bench.api.merge(TRAINING_JOBS, bench.namespace, "digits", change)
    for pod in bench.wait_for_pods("digits"):
        assert (pod["metadata"]["labels"]["team"], pod["metadata"]["annotations"]["cost"]) == ("vision", "7")


@pytest.mark.parametrize(
    ("refuse", "allow", "words"),
    [
        (lambda bench: quota(bench, "0"), lambda bench: quota(bench, "9"), "exceeded quota: few"),
        (
            lambda bench: refuse_by_security(bench, "restricted"),
            lambda bench: refuse_by_security(bench, "privileged"),
            'violates PodSecurity "restricted:latest"',
        ),
    ],
    ids=["quota", "pod security"],
)
def test_the_status_says_why_there_are_no_pods_and_no_longer_when_they_are_made(bench, refuse, allow, words):
    refuse(bench)
    bench.create("digits")
    message = told(bench, words)
    assert message.startswith("0 of 2 workers are ready; the Job digits cannot make pods: pods ")
    assert bench.status("digits")["state"] == "Starting"
    allow(bench)
    pods = bench.wait_for_pods("digits")
    eventually(
        lambda: bench.status("digits")["message"] == "0 of 2 workers are ready", "nothing is in the way any longer"
    )
    bench.play_running(*pods)
    bench.play_training("digits")


def test_a_job_that_gets_some_of_its_pods_says_why_not_all(bench):
    quota(bench, "1")
    bench.create("digits")
    assert told(bench, "exceeded quota: few").startswith("0 of 2 workers are ready; the Job digits cannot make pods")
    (pod,) = bench.pods("digits")
    bench.play_running(pod)
    eventually(lambda: bench.status("digits")["message"].startswith("1 of 2 workers are ready; the Job"), "one runs")


def test_a_quota_that_the_jobs_own_children_fill_is_in_the_way_of_no_restart_and_no_repair(bench):
    """The API server counts what is to be created before it finds that it exists."""
    quota(bench, "1", "services")
    pods = bench.start("digits")
    bench.change("digits", maxRestarts=7)
    eventually(lambda: bench.status("digits")["observedGeneration"] == 2, "the new spec was seen")
    bench.play_failed(pods[0])
    bench.play_running(*bench.wait_for_pods("digits", attempt=1))
    bench.play_training("digits")
    assert bench.api.get(QUOTAS, bench.namespace, "few")["status"]["used"] == {"services": "1"}
    blocked = bench.events("digits").get("Blocked", "")  # on a slow machine, by pods of before that have not ended
    assert "quota" not in blocked


def play_unmounted(bench, pod, message):
    """As a kubelet would: the pod waits for its volumes, and an event says why."""
    bench.play_waiting(pod, "ContainerCreating", "")
    metadata = pod["metadata"]
    about = {"apiVersion": "v1", "kind": "Pod", **{key: metadata[key] for key in ("namespace", "name", "uid")}}
    head = {"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": bench.namespace, "name": metadata["name"]}}
    bench.api.create(
        EVENTS, {**head, "involvedObject": about, "type": "Warning", "reason": "FailedMount", "message": message}
    )


def test_a_pod_that_cannot_mount_its_volumes_says_why_until_it_runs(bench):
    bench.create("digits")
    pods = bench.wait_for_pods("digits")
    for each in pods:
        play_unmounted(bench, each, 'configmap "none" not found')
    message = told(bench, 'configmap "none" not found', "FailedMount")
    assert message.startswith("0 of 2 workers are ready; worker 0 cannot mount its volumes: configmap")
    bench.play_running(*pods)
    bench.play_training("digits")
