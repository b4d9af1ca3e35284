"""What an operator sees of a job one of whose nodes is lost, and of the Jobs of its attempts."""

from __future__ import annotations

import pytest
from fixtures import NOW, SETTINGS, UID, ago, job
from kit.silent_training import SilentTraining
from trimtab_api.names import MOST_WORKERS, attempt_name, possible_jobs, worker_host
from trimtab_operator.children.job import job_manifest
from trimtab_operator.decisions.decide import Action, decide
from trimtab_operator.decisions.pod_creation_errors import PodCreationErrors
from trimtab_operator.decisions.pods import Pod
from trimtab_operator.kube.api import RefusedError
from trimtab_operator.kube.resources import JOBS, NODES, PODS
from trimtab_operator.reconcile.observe import Observer

READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
UNKNOWN = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
FAILURE = {"type": "FailureTarget", "status": "True", "message": "Job has reached the specified backoff limit"}
#: What a pod says whose node controller, or whose kubelet, has found it unready.
MARKED = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
UNREADY = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}]


class Cluster:
    """Its objects, as the API server and the watches show them alike."""

    def __init__(self) -> None:
        self.jobs, self.pod_list, self.nodes = {}, [], {}
        self.may_read_nodes = True

    def get(self, resource, namespace, name):
        if resource is NODES and not self.may_read_nodes:
            raise RefusedError(403, "Forbidden", "nodes is forbidden")
        return (self.nodes if resource is NODES else self.jobs if resource is JOBS else {}).get(name)

    def list(self, resource, namespace, **query):
        return {"items": self.pod_list if resource is PODS else []}

    def batch_job(self, namespace, name):
        return self.jobs.get(name)

    def pods(self, namespace, name):
        return [each for each in self.pod_list if each["metadata"]["ownerReferences"][0]["name"] == name]

    def make_job(self, attempt, name=None, deleted=False, conditions=()):
        made = job_manifest(job(), "team", UID, attempt, {}, SETTINGS)
        name = name or made["metadata"]["name"]
        metadata = {**made["metadata"], "name": name, "uid": f"uid of {name}"}
        metadata |= {"deletionTimestamp": ago(5)} if deleted else {}
        self.jobs[name] = {**made, "metadata": metadata, "status": {"conditions": list(conditions)}}

    def make_pod(self, batch_job, worker, node, conditions=(), phase="Running", deleted=False):
        metadata = {
            "name": f"{batch_job}-{worker}",
            "labels": {"batch.kubernetes.io/job-completion-index": str(worker)},
            "ownerReferences": [{"kind": "Job", "name": batch_job, "uid": f"uid of {batch_job}", "controller": True}],
        }
        metadata |= {"deletionTimestamp": ago(5)} if deleted else {}
        status = {"phase": phase, "conditions": list(conditions)}
        self.pod_list.append({"metadata": metadata, "spec": {"nodeName": node}, "status": status})

    def decide(self, restarts=0):
        resource = job().model_dump(mode="json", by_alias=True, exclude_none=True)
        resource["metadata"] |= {"namespace": "team", "uid": UID, "generation": 1}
        resource["status"] = {"observedGeneration": 1, "startTime": ago(60), "restarts": restarts}
        observer = Observer(self, self, SilentTraining(), PodCreationErrors(self), lambda: NOW, lambda *_: False)
        return decide(observer.observe(resource))


@pytest.fixture
def cluster():
    return Cluster()


@pytest.mark.parametrize(
    ("node", "conditions", "may_read_nodes", "is_disruption"),
    [
        (UNKNOWN, (), True, True),
        ({"status": {}}, (), True, True),
        (None, (), True, True),
        (READY, (), True, False),
        (READY, UNREADY, True, False),
        (UNKNOWN, (), False, False),
        (UNKNOWN, MARKED, False, True),
    ],
    ids=["unknown", "no kubelet", "gone", "ready", "unready pod", "may not be read", "told by the pod"],
)
def test_a_failed_attempt_with_a_worker_on_a_lost_node_does_not_count(
    cluster, node, conditions, may_read_nodes, is_disruption
):
    cluster.make_job(0, conditions=[FAILURE])
    cluster.make_pod("digits", 0, "near", phase="Failed")
    cluster.make_pod("digits", 1, "far", conditions)
    cluster.nodes = {"near": READY, **({} if node is None else {"far": node})}
    cluster.may_read_nodes = may_read_nodes
    restart = cluster.decide().restart
    assert restart.counts_toward_max_restarts is not is_disruption
    assert (restart.cause.reason == "NodeLost") is is_disruption


def test_the_next_attempt_waits_for_pods_that_can_end_and_for_no_others(cluster):
    cluster.make_job(0, deleted=True)
    cluster.make_pod("digits", 0, "near", deleted=True)
    cluster.make_pod("digits", 1, "far", deleted=True)
    cluster.nodes = {"near": READY, "far": UNKNOWN}
    assert cluster.decide(restarts=1).action is Action.NOTHING
    del cluster.pod_list[0]
    assert cluster.decide(restarts=1).action is Action.CREATE_BATCH_JOB


def test_the_job_of_the_attempt_before_is_deleted_under_its_own_name(cluster):
    cluster.make_job(1)
    decision = cluster.decide(restarts=2)
    assert (decision.action, decision.batch_job.name) == (Action.DELETE_BATCH_JOB, "digits-r1")


def test_a_job_that_an_earlier_operator_named_after_the_training_job_is_known_by_its_attempt(cluster):
    cluster.make_job(2, name="digits")
    assert cluster.decide(restarts=2).action is Action.NOTHING
    decision = cluster.decide(restarts=3)
    assert (decision.action, decision.batch_job.name) == (Action.DELETE_BATCH_JOB, "digits")


def test_names_of_attempts_differ_and_the_longest_are_host_names():
    assert [attempt_name("digits", attempt) for attempt in range(3)] == ["digits", "digits-r1", "digits-r2"]
    assert [possible_jobs(each) for each in ("digits", "digits-r12")] == [{"digits"}, {"digits", "digits-r12"}]
    host, *_ = worker_host("n" * 52, "team", MOST_WORKERS - 1, attempt_name("n" * 52, 999_999)).split(".")
    assert len(host) <= 63


def test_a_readiness_gate_that_is_not_met_says_nothing_of_the_node():
    def read(spec):
        status = {"phase": "Running", "conditions": MARKED}
        return Pod.read({"metadata": {}, "spec": {"nodeName": "far", **spec}, "status": status})

    assert read({}).node_is_lost
    assert not read({"readinessGates": [{"conditionType": "example.com/fit"}]}).node_is_lost
