"""A name that a child needs is somebody else's: it is told with the remedy, nothing is written, and then it goes on."""

from __future__ import annotations

import pytest
from trimtab_operator.kube.resources import JOBS, NETWORK_POLICIES, SECRETS, SERVICES
from workbench import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

THEIR_POD = {"restartPolicy": "Never", "containers": [{"name": "theirs", "image": "theirs.test/theirs:1"}]}
#: What somebody else has, of each kind of child, but for its head.
THEIRS = {
    JOBS: {"spec": {"suspend": True, "template": {"spec": THEIR_POD}}},
    SERVICES: {"spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]}},
    NETWORK_POLICIES: {"spec": {"podSelector": {}, "policyTypes": ["Egress"]}},
    SECRETS: {"data": {"password": "c2VjcmV0"}},
}
OUR_LABELS = {
    "trimtab.dev/job-name": "digits",
    "trimtab.dev/attempt": "first",
    "app.kubernetes.io/managed-by": "trimtab-operator",
}


def told(resource, name):
    return (
        f"waits for the {resource.kind} {name} to go: it belongs to something else; "
        "delete it, or create this TrainingJob under another name"
    )


@pytest.mark.parametrize("labels", [{"app": "theirs"}, OUR_LABELS], ids=["their labels", "our labels"])
@pytest.mark.parametrize("resource", THEIRS, ids=lambda resource: resource.kind)
def test_what_is_there_is_not_written_to_the_status_says_what_to_do_and_when_it_is_gone_the_job_starts(
    bench, resource, labels
):
    name = "digits" if resource in (JOBS, SERVICES) else "digits-trimtab"
    head = {"name": name, "namespace": bench.namespace, "labels": labels}
    bench.api.create(
        resource,
        {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": head, **THEIRS[resource]},
    )

    def theirs():
        found = bench.api.get(resource, bench.namespace, name)
        marks = {key: found["metadata"].get(key) for key in ("uid", "labels", "annotations", "ownerReferences")}
        return marks, {key: value for key, value in found.items() if key not in ("metadata", "status")}

    before = theirs()
    bench.create("digits")
    message = told(resource, name)
    eventually(lambda: bench.status("digits").get("message") == message, "the status says what to do")
    assert bench.status("digits")["state"] == "Pending"
    for kind in ("Ready", "Started"):
        condition = bench.condition("digits", kind)
        assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Blocked", message)
    eventually(lambda: bench.events("digits") == {"Blocked": message}, "one event says so")
    assert theirs() == before
    assert bench.pods("digits") == []

    bench.api.delete(resource, bench.namespace, name, before[0]["uid"])
    bench.play_running(*bench.wait_for_pods("digits"))
    bench.play_training("digits")
    assert bench.condition("digits", "Started")["reason"] == "WorkersReady"


def put_theirs_in_the_way(bench):
    """Somebody's Service takes the place of the running job's, and the operator finds it there."""
    ours = bench.api.get(SERVICES, bench.namespace, "digits")
    bench.api.delete(SERVICES, bench.namespace, "digits", ours["metadata"]["uid"])
    eventually(lambda: bench.api.get(SERVICES, bench.namespace, "digits") is None, "ours is gone")
    head = {"name": "digits", "namespace": bench.namespace}
    bench.api.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": head, **THEIRS[SERVICES]})
    bench.change("digits", maxRestarts=9)  # has the operator see to the children
    eventually(lambda: bench.condition("digits", "Ready")["reason"] == "Blocked", "the condition says so")


def test_a_job_that_runs_goes_on_while_something_else_has_a_name_of_its_and_says_so(bench):
    bench.start("digits")
    put_theirs_in_the_way(bench)
    status = bench.status("digits")
    assert (status["state"], status["restarts"], status["message"]) == ("Running", 0, told(SERVICES, "digits"))
    eventually(lambda: bench.events("digits").get("Blocked") == told(SERVICES, "digits"), "an event says so")
    theirs = bench.api.get(SERVICES, bench.namespace, "digits")
    assert theirs["spec"]["selector"] == {"app": "theirs"}
    bench.api.delete(SERVICES, bench.namespace, "digits", theirs["metadata"]["uid"])
    eventually(lambda: bench.condition("digits", "Ready")["reason"] == "Running", "it is well again")
    selector = bench.api.get(SERVICES, bench.namespace, "digits")["spec"]["selector"]
    assert selector == {"trimtab.dev/job-name": "digits", "trimtab.dev/attempt": "0"}


def test_a_job_in_whose_way_something_is_still_ends_as_its_pods_do(bench):
    """What is in the way of a repair is in nobody's way who has ended."""
    pods = bench.start("digits")
    put_theirs_in_the_way(bench)
    bench.play_succeeded(*pods)
    assert bench.wait_for_state("digits", "Succeeded")["message"] == "all 2 workers ended well"
