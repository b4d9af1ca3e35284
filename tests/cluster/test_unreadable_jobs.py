"""A job that the API server took and the operator cannot read: a definition and an operator of different versions."""

from __future__ import annotations

import copy
import json

import pytest
import yaml
from trimtab_operator.kube.resources import TRAINING_JOBS
from workbench import CRD, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

REMEDY = (
    "the operator cannot read this job and leaves it as it is: "
    "upgrade the operator, or delete the job, mend its file and create it anew"
)


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


def is_unreadable(bench, name):
    """Wait until the job is said to be unreadable; returns the condition."""
    eventually(lambda: bench.condition(name, "Ready").get("reason") == "UnreadableSpec", "the condition says so")
    return bench.condition(name, "Ready")


@pytest.mark.usefixtures("other_version")
def test_it_says_which_field_and_what_to_do_and_nothing_is_made(bench):
    bench.create("digits", workers=0)
    ready = is_unreadable(bench, "digits")
    assert (ready["status"], ready["observedGeneration"]) == ("Unknown", 1)
    assert ready["message"] == f"spec.workers: '0': must be at least 1; {REMEDY}"
    status = bench.status("digits")
    assert (status["state"], status["message"], status["observedGeneration"]) == ("Pending", ready["message"], 1)
    assert bench.child("digits") is None
    eventually(lambda: bench.events("digits").get("UnreadableSpec") == status["message"], "the event says so")


@pytest.mark.usefixtures("other_version")
def test_a_job_that_can_be_read_again_starts(bench):
    bench.create("digits", workers=0)
    is_unreadable(bench, "digits")
    bench.change("digits", workers=2)
    bench.play_running(*bench.wait_for_pods("digits"))
    eventually(lambda: bench.condition("digits", "Started").get("status") == "True", "it has started")


@pytest.mark.usefixtures("other_version")
def test_a_job_that_runs_and_can_no_longer_be_read_is_left_as_it_is(bench):
    pods, child = bench.start("digits"), bench.child("digits")
    before = bench.status("digits")
    bench.change("digits", workers=0)
    is_unreadable(bench, "digits")
    bench.create("later")
    bench.wait_for_pods("later")  # by now the first would have been seen to
    assert bench.child("digits")["metadata"]["uid"] == child["metadata"]["uid"]
    assert [each["metadata"]["uid"] for each in bench.pods("digits")] == [each["metadata"]["uid"] for each in pods]
    status = bench.status("digits")
    assert (status["state"], status["restarts"]) == (before["state"], 0)
    assert bench.condition("digits", "Failed")["status"] == "False"
    bench.change("digits", workers=2)
    eventually(lambda: bench.condition("digits", "Ready")["reason"] != "UnreadableSpec", "it is read again")
    assert bench.child("digits")["metadata"]["uid"] == child["metadata"]["uid"]
    bench.play_succeeded(*pods)
    assert bench.wait_for_state("digits", "Succeeded")["restarts"] == 0


@pytest.mark.usefixtures("other_version")
def test_a_job_that_has_succeeded_stays_so_when_it_can_no_longer_be_read(bench):
    pods = bench.start("digits")
    bench.play_succeeded(*pods)
    before = bench.wait_for_state("digits", "Succeeded")
    bench.change("digits", workers=0)
    bench.create("later")
    bench.wait_for_pods("later")  # by now the first would have been seen to
    assert bench.status("digits")["state"] == before["state"]
    assert bench.status("digits")["message"] == before["message"]
