"""Children that a stranger deletes or edits, on a real API server: what is put right, when, and what is only told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from kit.silent_training import SilentTraining
from seen import Seen
from trimtab_operator.decisions.policies.timers import spread
from trimtab_operator.kube.resources import JOBS, NETWORK_POLICIES, PODS, SECRETS, SERVICES
from trimtab_operator.main import read_settings
from trimtab_operator.reconcile.reconciler import RESYNC_SECONDS, Reconciler
from workbench import Workbench, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

#: Every child but the Job.
CHILDREN = [
    (SERVICES, "digits"),
    (NETWORK_POLICIES, "digits-trimtab"),
    (SECRETS, "digits-trimtab"),
]
#: Of a child, what a stranger writes there, and where. A Secret is missing: it is immutable.
EDITS = [
    (SERVICES, "digits", "spec", {"selector": {"app": "theirs"}, "publishNotReadyAddresses": False}),
    (NETWORK_POLICIES, "digits-trimtab", "spec", {"ingress": [{}]}),
]


def delete(bench: Workbench, resource, name):
    """Delete an object, and wait until that very one is gone: a Job may be made anew at once."""

    def uid():
        return (bench.api.get(resource, bench.namespace, name) or {"metadata": {"uid": None}})["metadata"]["uid"]

    theirs = uid()
    bench.api.delete(resource, bench.namespace, name, theirs)
    eventually(lambda: uid() != theirs, f"{resource.kind} {name} is gone")


def change_the_spec(bench: Workbench):
    """Have the operator see to the children: wait until it has seen a spec that it has not seen before."""
    bench.change("digits", maxRestarts=bench.job("digits")["spec"]["maxRestarts"] + 1)


@pytest.mark.parametrize(("resource", "name"), CHILDREN, ids=[resource.kind for resource, _ in CHILDREN])
def test_a_child_that_a_stranger_deletes_is_back_when_the_spec_changes(bench, resource, name):
    bench.start("digits")
    uid = bench.job("digits")["metadata"]["uid"]
    delete(bench, resource, name)
    change_the_spec(bench)
    eventually(lambda: bench.api.get(resource, bench.namespace, name), f"the {resource.kind} is back")
    (owner,) = bench.api.get(resource, bench.namespace, name)["metadata"]["ownerReferences"]
    assert owner["uid"] == uid
    eventually(lambda: bench.status("digits")["observedGeneration"] == 2, "the new spec was seen")
    assert bench.status("digits")["restarts"] == 0


@pytest.mark.parametrize(("resource", "name", "field", "theirs"), EDITS, ids=[each[0].kind for each in EDITS])
def test_what_a_stranger_writes_in_a_child_is_undone_when_the_spec_changes(bench, resource, name, field, theirs):
    bench.start("digits")
    before = bench.api.get(resource, bench.namespace, name)[field]
    bench.api.merge(resource, bench.namespace, name, {field: theirs})
    assert bench.api.get(resource, bench.namespace, name)[field] != before
    change_the_spec(bench)
    eventually(lambda: bench.api.get(resource, bench.namespace, name)[field] == before, f"{resource.kind} is as before")


def test_a_stranger_cannot_write_in_the_secret(bench):
    bench.start("digits")
    refused = bench.control_plane.kubectl(
        "patch", "secret", "digits-trimtab", "-n", bench.namespace, "--type=merge", '-p={"data": {"tls.key": "YQ=="}}'
    )
    assert "field is immutable when `immutable` is set" in refused.stderr


def test_deleted_children_are_back_after_ten_minutes_though_nothing_else_happens(bench):
    bench.start("digits")
    now = datetime.now(UTC)
    settings = read_settings(["--namespace", "trimtab-system", "--netmon-image", "netmon.test/netmon:1"])
    reconciler = Reconciler(bench.api, settings, Seen(bench), SilentTraining(), clock=lambda: now)

    def present():
        return [resource.kind for resource, name in CHILDREN if bench.api.get(resource, bench.namespace, name)]

    resync = spread(RESYNC_SECONDS, bench.job("digits")["metadata"]["uid"])
    assert reconciler.reconcile(f"{bench.namespace}/digits") <= resync
    for resource, name in CHILDREN:
        delete(bench, resource, name)
    now += timedelta(seconds=resync - 1)
    reconciler.reconcile(f"{bench.namespace}/digits")
    assert present() == []
    now += timedelta(seconds=2)
    reconciler.reconcile(f"{bench.namespace}/digits")
    assert present() == [resource.kind for resource, _ in CHILDREN]


def test_a_job_that_a_stranger_took_from_its_owner_is_told_and_made_anew_once_it_is_gone(bench):
    bench.start("digits")
    bench.api.merge(JOBS, bench.namespace, "digits", {"metadata": {"ownerReferences": None}})
    eventually(
        lambda: bench.status("digits")["message"].startswith("waits for the Job digits to go: it belongs to something"),
        "the status says so",
    )
    assert bench.condition("digits", "Ready")["reason"] == "Blocked"
    eventually(lambda: ("Blocked", bench.status("digits")["message"]) in bench.all_events("digits"), "an event says so")
    delete(bench, JOBS, "digits")
    bench.play_running(*bench.wait_for_pods("digits"))
    bench.play_training("digits")
    (owner,) = bench.child("digits")["metadata"]["ownerReferences"]
    assert owner["uid"] == bench.job("digits")["metadata"]["uid"]


NAME, MANAGED_BY, ATTEMPT = "trimtab.dev/job-name", "app.kubernetes.io/managed-by", "trimtab.dev/attempt"


@pytest.mark.parametrize(
    "theirs",
    [
        {NAME: None},
        {MANAGED_BY: None},
        {NAME: None, MANAGED_BY: None, ATTEMPT: None},
        {NAME: "other", MANAGED_BY: "somebody"},
        {NAME: "other"},
        {ATTEMPT: "7"},
        {ATTEMPT: "seven"},
    ],
    ids=str,
)
def test_labels_of_the_job_that_a_stranger_edits_are_as_before_at_once_and_nothing_restarts(bench, theirs):
    """Without them the watch does not show the Job, and it looks as if there were none."""
    pods = bench.start("digits")
    before = bench.child("digits")["metadata"]
    bench.api.merge(JOBS, bench.namespace, "digits", {"metadata": {"labels": {**theirs, "team": "vision"}}})
    ours = {NAME: "digits", MANAGED_BY: "trimtab-operator", ATTEMPT: "0"}
    eventually(lambda: ours.items() <= bench.child("digits")["metadata"]["labels"].items(), "the labels are back")
    after = bench.child("digits")["metadata"]
    assert (after["uid"], after["ownerReferences"]) == (before["uid"], before["ownerReferences"])
    assert after["labels"] == {**before["labels"], "team": "vision"}, "what is not ours stays"
    bench.play_succeeded(*pods)
    assert bench.wait_for_state("digits", "Succeeded")["restarts"] == 0


def test_a_job_without_labels_is_still_known_by_its_attempt(bench):
    pods = bench.start("digits")
    bench.play_failed(pods[0])
    again = bench.wait_for_pods("digits", attempt=1)
    bench.play_running(*again)
    bench.play_training("digits")
    bench.api.merge(JOBS, bench.namespace, "digits-r1", {"metadata": {"labels": None}})
    eventually(
        lambda: bench.child("digits-r1")["metadata"].get("labels", {}).get(ATTEMPT) == "1", "the labels are back"
    )
    bench.play_succeeded(*again)
    assert bench.wait_for_state("digits", "Succeeded")["restarts"] == 1


@pytest.mark.parametrize(("resource", "name"), CHILDREN[:2], ids=[resource.kind for resource, _ in CHILDREN[:2]])
def test_labels_of_other_children_are_as_before_when_the_spec_changes(bench, resource, name):
    bench.start("digits")
    before = bench.api.get(resource, bench.namespace, name)["metadata"]["labels"]
    bench.api.merge(resource, bench.namespace, name, {"metadata": {"labels": None}})
    assert "labels" not in bench.api.get(resource, bench.namespace, name)["metadata"]
    change_the_spec(bench)
    eventually(
        lambda: bench.api.get(resource, bench.namespace, name)["metadata"].get("labels") == before, "they are back"
    )


def test_a_pod_that_a_stranger_labels_as_a_worker_is_none(bench):
    """Labels anybody may give; a worker is what the Job controller made for this very Job."""
    bench.start("digits", maxRestarts=0)
    real = bench.pods("digits")[0]
    labels = {name: text for name, text in real["metadata"]["labels"].items() if "controller-uid" not in name}
    for name, index in (("stray", "9"), ("nonsense", "first")):
        theirs = {**labels, "batch.kubernetes.io/job-completion-index": index}
        stray = {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "metadata": {"name": name, "namespace": bench.namespace, "labels": theirs},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "theirs.test/theirs:1"}]},
        }
        bench.api.create(PODS, stray)
        bench.play_disrupted(stray)
    change_the_spec(bench)
    eventually(lambda: bench.status("digits")["observedGeneration"] == 2, "the operator has looked")
    status = bench.status("digits")
    assert (status["state"], status["restarts"], status["disruptions"]) == ("Running", 0, 0)
    bench.play_disrupted(real)
    eventually(lambda: bench.status("digits")["disruptions"] == 1, "a real worker is heard")


def test_pods_that_outlive_their_job_are_told_and_waited_for(bench):
    """Else two pods of one rank would answer to one name."""
    pods = bench.start("digits")
    orphaned = bench.control_plane.kubectl("delete", "job", "digits", "-n", bench.namespace, "--cascade=orphan")
    assert orphaned.returncode == 0, orphaned.stderr
    remedy = f"kubectl delete pods -n {bench.namespace} -l trimtab.dev/job-name=digits"
    told = f"waits for pods of an earlier attempt to end (worker 0, 1); if they never do: {remedy}"
    eventually(lambda: bench.status("digits").get("message") == told, "the status says so")
    assert bench.child("digits") is None
    before = {each["metadata"]["uid"] for each in pods}
    assert {each["metadata"]["uid"] for each in bench.pods("digits")} == before
    deleted = bench.control_plane.kubectl(*remedy.split()[1:])
    assert deleted.returncode == 0, deleted.stderr
    again = bench.wait_for_pods("digits")
    assert not before & {each["metadata"]["uid"] for each in again}
    bench.play_running(*again)
    bench.play_training("digits")


class SeenLongAgo(Seen):
    """A watch that shows a Job as it was."""

    def __init__(self, bench: Workbench, job) -> None:
        super().__init__(bench)
        self.job_then = job

    def batch_job(self, namespace, name):
        return self.job_then


def test_a_job_that_makes_no_pods_and_nobody_says_why_is_made_anew_after_a_minute(bench):
    """As where the Job controller waits for pods of the Job before it; here a stranger has asked for none.

    It asks before the Job has pods: pods that it would take away would seem to be deleted by hand.
    """
    bench.create("digits", suspend=True)
    eventually(lambda: bench.child("digits"), "the Job is there")
    of_the_job = ("patch", "job", "digits", "-n", bench.namespace, "--type=merge")
    bench.control_plane.kubectl(*of_the_job, '-p={"spec": {"parallelism": 0}}')
    bench.change("digits", suspend=False)
    eventually(lambda: not bench.child("digits")["spec"]["suspend"], "the operator has resumed the Job")
    eventually(lambda: bench.child("digits")["status"].get("startTime"), "the Job controller has begun with it")
    assert not bench.pods("digits")
    theirs = bench.child("digits")
    now = datetime.now(UTC)
    settings = read_settings(["--namespace", "trimtab-system", "--netmon-image", "netmon.test/netmon:1"])

    def reconcile_for_a_minute(cache):
        nonlocal now
        reconciler = Reconciler(bench.api, settings, cache, SilentTraining(), clock=lambda: now)
        reconciler.reconcile(f"{bench.namespace}/digits")  # it lacks pods
        for seconds in (5, 54):  # it is asked why; it is not yet time
            now += timedelta(seconds=seconds)
            reconciler.reconcile(f"{bench.namespace}/digits")
        assert bench.child("digits")["metadata"]["uid"] == theirs["metadata"]["uid"]
        now += timedelta(seconds=1)
        reconciler.reconcile(f"{bench.namespace}/digits")

    bench.control_plane.kubectl(*of_the_job, '-p={"metadata": {"annotations": {"somebody": "was here"}}}')
    reconcile_for_a_minute(SeenLongAgo(bench, theirs))
    assert "deletionTimestamp" not in bench.child("digits")["metadata"], "it may have pods by now"
    reconcile_for_a_minute(Seen(bench))
    eventually(lambda: len(bench.pods("digits")) == 2, "another Job makes its pods")
    assert bench.child("digits")["metadata"]["uid"] != theirs["metadata"]["uid"]
    assert bench.status("digits")["restarts"] == 0
