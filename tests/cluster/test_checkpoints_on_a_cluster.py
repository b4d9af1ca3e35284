"""Where checkpoints are kept, and another number of workers: what a real API server and Job controller make of it."""

from __future__ import annotations

import json

import pytest
from trimtab_operator.kube.resources import CLAIMS, TRAINING_JOBS
from workbench import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

ON_A_CLAIM = {"volumeClaim": {"size": "1Gi"}}


def claim(name, mode):
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def create_claim(bench, name, mode):
    bench.api.send("POST", CLAIMS.path(bench.namespace), body=claim(name, mode))


def mounted(pod):
    volumes = pod["spec"]["volumes"]
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def trainer(pod):
    (found,) = (each for each in pod["spec"]["containers"] if each["name"] == "trainer")
    return found


def test_a_claim_is_made_stays_over_restarts_and_goes_with_the_job(bench):
    pods = bench.start("digits", checkpoint=ON_A_CLAIM)
    made = bench.api.get(CLAIMS, bench.namespace, "digits-trimtab")
    assert made["spec"]["accessModes"] == ["ReadWriteMany"]
    assert [mounted(pod) for pod in pods] == [["digits-trimtab"]] * 2
    assert {pod["spec"]["terminationGracePeriodSeconds"] for pod in pods} == {60}
    bench.play_failed(pods[1])
    again = bench.wait_for_pods("digits", 2, attempt=1)
    assert [mounted(pod) for pod in again] == [["digits-trimtab"]] * 2
    assert bench.api.get(CLAIMS, bench.namespace, "digits-trimtab")["metadata"]["uid"] == made["metadata"]["uid"]
    bench.api.delete(TRAINING_JOBS, bench.namespace, "digits", bench.job("digits")["metadata"]["uid"])
    eventually(lambda: bench.api.get(CLAIMS, bench.namespace, "digits-trimtab") is None, "the claim has gone")


def test_a_job_waits_for_the_claim_that_it_names_and_says_so(bench):
    bench.create("digits", checkpoint={"volumeClaim": {"existing": "shared"}})
    eventually(lambda: bench.condition("digits", "Ready").get("reason") == "Blocked", "the job is blocked")
    message = bench.condition("digits", "Ready")["message"]
    assert message.startswith("spec.checkpoint.volumeClaim.existing: shared: namespace")
    assert "has no such claim; create it, or write size for one that is made" in message
    assert bench.pods("digits") == []
    create_claim(bench, "shared", "ReadWriteMany")
    assert [mounted(pod) for pod in bench.wait_for_pods("digits")] == [["shared"]] * 2


def test_a_claim_that_is_read_only_keeps_a_job_from_starting(bench):
    create_claim(bench, "shared", "ReadOnlyMany")
    bench.create("digits", checkpoint={"volumeClaim": {"existing": "shared"}})
    eventually(lambda: "read-only" in bench.condition("digits", "Ready").get("message", ""), "the cause is told")
    assert bench.status("digits")["state"] == "Pending"


def test_a_claim_of_that_name_that_is_somebody_elses_is_left_alone(bench):
    create_claim(bench, "digits-trimtab", "ReadWriteMany")
    bench.create("digits", checkpoint=ON_A_CLAIM)
    eventually(lambda: bench.condition("digits", "Ready").get("reason") == "Blocked", "the job is blocked")
    assert "it belongs to something else" in bench.condition("digits", "Ready")["message"]
    assert "ownerReferences" not in bench.api.get(CLAIMS, bench.namespace, "digits-trimtab")["metadata"]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_job_goes_on_with_another_number_of_workers(bench, workers):
    bench.start("digits", checkpoint={"path": "/mnt/c"}, maxRestarts=0, maxDisruptions=0)
    bench.change("digits", workers=workers)
    pods = bench.wait_for_pods("digits", workers, attempt=1)
    told = [{each["name"]: each.get("value") for each in trainer(pod)["env"]} for pod in pods]
    assert {each["TRIMTAB_WORKERS"] for each in told} == {str(workers)}
    monitor = pods[0]["spec"]["initContainers"][0]
    assert f"digits-r1-{{0..{workers - 1}}}" in json.dumps(monitor["args"])
    bench.play_running(*pods)
    status = bench.play_training("digits")
    assert (status["restarts"], status["disruptions"]) == (1, 1)
    assert status["lastRestartReason"] == f"spec.workers changed from 2 to {workers}"
    assert bench.events("digits")["Restarting"] == f"restart 1: spec.workers changed from 2 to {workers}"
    bench.play_succeeded(*pods)
    bench.wait_for_state("digits", "Succeeded")
