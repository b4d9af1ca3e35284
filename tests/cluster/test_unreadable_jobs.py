"""A job that the API server took and the operator cannot read: a definition and an operator of different versions."""

from __future__ import annotations

import copy
import json

import pytest
import yaml
from test_life_of_a_job import started
from trimtab_operator.cluster.resources import TRAINING_JOBS
from workbench import CRD, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

REMEDY = "delete the job, mend its file and create it anew"


def lax(definition):
    """The same definition, its spec anything at all."""
    definition = copy.deepcopy(definition)
    (version,) = definition["spec"]["versions"]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version["schema"]["openAPIV3Schema"]["properties"]["spec"] = anything
    return definition


@pytest.fixture
def other_version(bench):
    """The cluster has another version's definition, which takes what the operator of this one does not."""
    ours = yaml.safe_load(CRD.read_text())
    refused = json.dumps(bench.manifest("tried", workers=0))

    def define(definition):
        done = bench.control_plane.kubectl("replace", "-f", "-", stdin=json.dumps(definition))
        assert done.returncode == 0, done.stderr

    def takes():
        """Whether a bad job is let in, so often that every part of the API server has the definition."""
        tried = [bench.control_plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=refused) for _ in range(3)]
        return [each.returncode == 0 for each in tried]

    define(lax(ours))
    eventually(lambda: all(takes()), "the API server takes what the other version takes")
    yield
    for job in bench.api.list(TRAINING_JOBS, bench.namespace)["items"]:
        bench.api.delete(TRAINING_JOBS, bench.namespace, job["metadata"]["name"], job["metadata"]["uid"])
    define(ours)
    eventually(lambda: not any(takes()), "the API server refuses again what is wrong")


@pytest.mark.usefixtures("other_version")
def test_it_has_failed_and_says_which_field_and_what_to_do(bench):
    bench.create("digits", workers=0)
    status = bench.wait_for_state("digits", "Failed")
    assert status["message"] == f"spec.workers: '0': must be at least 1; {REMEDY}"
    failed = bench.condition("digits", "Failed")
    assert (failed["status"], failed["reason"], failed["message"]) == ("True", "InvalidSpec", status["message"])
    assert status["observedGeneration"] == 1
    assert bench.child("digits") is None
    eventually(lambda: bench.events("digits").get("InvalidSpec") == status["message"], "the event says so")


@pytest.mark.usefixtures("other_version")
def test_failed_is_for_good_so_the_remedy_is_the_one_that_helps(bench):
    bench.create("digits", workers=0)
    bench.wait_for_state("digits", "Failed")
    bench.change("digits", workers=2)  # mended in place: this does not help, and the message does not say so
    bench.create("later")
    bench.wait_for_pods("later")  # by now the first would have been seen to
    assert (bench.status("digits")["state"], bench.child("digits")) == ("Failed", None)
    uid = bench.job("digits")["metadata"]["uid"]
    bench.api.delete(TRAINING_JOBS, bench.namespace, "digits", uid)
    eventually(lambda: not bench.job("digits"), "the job is deleted")
    bench.create("digits")
    bench.play_running(*bench.wait_for_pods("digits"))
    bench.wait_for_state("digits", "Running")


@pytest.mark.usefixtures("other_version")
def test_pods_of_a_job_that_can_no_longer_be_read_end(bench):
    started(bench, "digits")
    bench.change("digits", workers=0)
    assert REMEDY in bench.wait_for_state("digits", "Failed")["message"]
    eventually(lambda: bench.pods("digits") == [], "the pods end")


@pytest.mark.usefixtures("other_version")
def test_a_job_that_has_succeeded_stays_so_when_it_can_no_longer_be_read(bench):
    pods = started(bench, "digits")
    bench.play_succeeded(*pods)
    before = bench.wait_for_state("digits", "Succeeded")
    bench.change("digits", workers=0)
    bench.create("later")
    bench.wait_for_pods("later")  # by now the first would have been seen to
    assert bench.status("digits")["state"] == before["state"]
    assert bench.status("digits")["message"] == before["message"]
