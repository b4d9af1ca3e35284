"""What ``kubectl apply`` refuses: each malformed manifest by the real API server, with the field and what to do."""

from __future__ import annotations

import copy
import json
import subprocess

import pytest
from pydantic import ValidationError
from trimtab_api.trainingjob import TrainingJob
from trimtab_operator.kube.api import RefusedError
from trimtab_operator.kube.resources import TRAINING_JOBS

pytestmark = pytest.mark.controlplane

REMOVED = object()
SPEC = ("spec",)
COMMUNICATION = ("spec", "communication")
POD = ("spec", "template", "spec")
TRAINER = (*POD, "containers", 0)

GOOD = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits"},
    "spec": {
        "workers": 2,
        "template": {
            "spec": {
                "containers": [{"name": "trainer", "image": "trainer.test/trainer:1", "command": ["python", "t.py"]}]
            }
        },
        "communication": {},
        "network": {},
    },
}

#: Where, what is written there, and what the answer says: the field, and the remedy.
REFUSED_EVERYWHERE = [
    (("metadata", "name"), "1digits", "metadata.name", "beginning with a letter"),
    (("metadata", "name"), "a" * 53, "metadata.name", "at most 52"),
    (("metadata", "name"), "my.job", "metadata.name", "letters, digits and hyphens"),
    (("spec", "workers"), REMOVED, "spec.workers", "Required value"),
    (("spec", "workers"), 0, "spec.workers", "greater than or equal to 1"),
    (("spec", "workers"), 33, "spec.workers", "must be at most 32: the monitors of a job measure every pair"),
    (("spec", "workers"), "2", "spec.workers", "must be of type integer"),
    (("spec", "workers"), 1.5, "spec.workers", "must be of type integer"),
    (("spec", "worker"), 2, "spec.worker", "unknown field"),
    (("spec", "processesPerWorker"), 0, "spec.processesPerWorker", "greater than or equal to 1"),
    (("spec", "seed"), -1, "spec.seed", "greater than or equal to 0"),
    (("spec", "template"), REMOVED, "spec.template", "Required value"),
    (POD, REMOVED, "spec.template.spec", "Required value"),
    ((*POD, "containers"), [], "spec.template.spec.containers", "at least 1"),
    ((*TRAINER, "name"), "main", "spec.template.spec.containers", "exactly one container trainer"),
    ((*TRAINER, "command"), REMOVED, "spec.template.spec.containers[0].command", "write a list of strings"),
    ((*TRAINER, "command"), [], "spec.template.spec.containers[0].command", "at least 1"),
    ((*TRAINER, "command"), "python t.py", "spec.template.spec.containers[0].command", "must be of type array"),
    ((*TRAINER, "args"), [10], "spec.template.spec.containers[0].args[0]", "must be of type string"),
    ((*TRAINER, "ports"), ["x"], "spec.template.spec.containers[0].ports[0]", "must be of type object"),
    ((*TRAINER, "volumeMounts"), "x", "spec.template.spec.containers[0].volumeMounts", "must be of type array"),
    (("spec", "template", "metadata"), {"labels": ["a"]}, "spec.template.metadata.labels", "must be of type object"),
    (("spec", "template", "metadata"), {"annotations": {"a": 7}}, "spec.template.metadata.annotations.a", "string"),
    (("spec", "restartPolicy"), "Always", "spec.restartPolicy", 'supported values: "Never", "OnFailure"'),
    (("spec", "maxRestarts"), -1, "spec.maxRestarts", "greater than or equal to 0"),
    (("spec", "suspend"), "yes", "spec.suspend", "must be of type boolean"),
    (("spec", "managedBy"), "", "spec.managedBy", "at least 1 chars"),
    (("spec", "activeDeadlineSeconds"), 0, "spec.activeDeadlineSeconds", "greater than or equal to 1"),
    (("spec", "ttlSecondsAfterFinished"), -5, "spec.ttlSecondsAfterFinished", "greater than or equal to 0"),
    ((*COMMUNICATION, "policy"), "Auto", "spec.communication.policy", 'supported values: "Adaptive", "Static"'),
    ((*COMMUNICATION, "policy"), "Static", "spec.communication.plan", "a Static policy needs a plan"),
    ((*COMMUNICATION, "plan"), "dense", "spec.communication.plan", "remove it or say policy: Static"),
    (COMMUNICATION, {"policy": "Static", "plan": "1%/all-gather"}, "spec.communication.plan", "RATIO/COLLECTIVE"),
    (COMMUNICATION, {"policy": "Static", "plan": "2/all-gather"}, "spec.communication.plan", "ratio in (0, 1)"),
    (COMMUNICATION, {"policy": "Static", "plan": "0.1/gossip"}, "spec.communication.plan", "artopk-var-tree"),
    ((*COMMUNICATION, "ratio"), {"min": 0.5}, "spec.communication.ratio.min", "is more than max"),
    ((*COMMUNICATION, "ratio"), {"max": 1}, "spec.communication.ratio.max", "less than 1"),
    ((*COMMUNICATION, "ratio"), {"candidates": [0.5]}, "spec.communication.ratio.candidates", "outside min..max"),
    ((*COMMUNICATION, "ratio"), {"candidates": []}, "spec.communication.ratio.candidates", "at least 1"),
    ((*COMMUNICATION, "collectives"), ["dense-ring"], "spec.communication.collectives[0]", "not known; choose from"),
    ((*COMMUNICATION, "sparsifier"), "top-k", "spec.communication.sparsifier", 'supported values: "tracked"'),
    ((*COMMUNICATION, "fusion"), {"bufferSize": "25"}, "spec.communication.fusion.bufferSize", "such as 25MB"),
    ((*COMMUNICATION, "sparsifierAlternatives"), ["top-k"], "spec.communication.sparsifierAlternatives[0]", "topk"),
    (
        COMMUNICATION,
        {"policy": "Static", "plan": "0.1/arc-topk/sparsifier=topk"},
        "spec.communication.plan",
        "arc-topk selects by itself",
    ),
    (
        COMMUNICATION,
        {"policy": "Static", "plan": "0.1/arc-topk", "sparsifier": "topk"},
        "spec.communication.sparsifier",
        "arc-topk selects by itself",
    ),
    (
        COMMUNICATION,
        {"collectives": ["arc-topk"], "sparsifierAlternatives": ["topk"]},
        "spec.communication.sparsifierAlternatives",
        "arc-topk selects by itself",
    ),
    ((*COMMUNICATION, "fusion"), {"alternatives": ["halves"]}, "spec.communication.fusion.alternatives[0]", "single"),
    ((*COMMUNICATION, "schedules"), ["at-once"], "spec.communication.schedules[0]", "choose from wait-free"),
    ((*COMMUNICATION, "fusion"), {"bufferSize": 25}, "spec.communication.fusion.bufferSize", "type string"),
    ((*COMMUNICATION, "fusion"), {"selection": "both"}, "spec.communication.fusion.selection", "supported values"),
    ((*COMMUNICATION, "triggers"), {"gain": 0}, "spec.communication.triggers.gain", "greater than 0"),
    ((*COMMUNICATION, "trials"), {"budget": 2}, "spec.communication.trials.budget", "less than or equal to 1"),
    ((*COMMUNICATION, "speedWeight"), 2, "spec.communication.speedWeight", "less than or equal to 1"),
    ((*COMMUNICATION, "timeout"), "999ms", "spec.communication.timeout", "at least 1s"),
    ((*COMMUNICATION, "timeout"), "1441min", "spec.communication.timeout", "at most 24h"),
    (("spec", "checkpoint"), {"path": "/c", "interval": "999ms"}, "spec.checkpoint.interval", "at least 1s"),
    (("spec", "checkpoint"), {"interval": "2min"}, "spec.checkpoint.path", "by path or by volumeClaim"),
    (
        ("spec", "checkpoint"),
        {"path": "/c", "volumeClaim": {"size": "1Gi"}},
        "spec.checkpoint.path",
        "remove one of the two",
    ),
    (("spec", "checkpoint"), {"path": "sftp://me:se/cret@host/c"}, "spec.checkpoint.path", "password or a token"),
    (("spec", "checkpoint"), {"path": "s3://bucket/c?token=secret"}, "spec.checkpoint.path", "password or a token"),
    (("spec", "checkpoint"), {"path": "/c", "keep": 0}, "spec.checkpoint.keep", "greater than or equal to 1"),
    (("spec", "checkpoint"), {"volumeClaim": {}}, "spec.checkpoint.volumeClaim.existing", "write either existing"),
    (
        ("spec", "checkpoint"),
        {"volumeClaim": {"existing": "c", "size": "1Gi"}},
        "spec.checkpoint.volumeClaim.existing",
        "write either existing",
    ),
    (
        ("spec", "checkpoint"),
        {"volumeClaim": {"existing": "c", "storageClassName": "fast"}},
        "spec.checkpoint.volumeClaim.existing",
        "remove storageClassName",
    ),
    (
        ("spec", "checkpoint"),
        {"volumeClaim": {"existing": "My_Claim"}},
        "spec.checkpoint.volumeClaim.existing",
        "name a PersistentVolumeClaim",
    ),
    (("spec", "checkpoint"), {"volumeClaim": {"size": "lots"}}, "spec.checkpoint.volumeClaim.size", "such as 10Gi"),
    (("spec", "checkpoint"), {"volumeClaim": {"size": "0Gi"}}, "spec.checkpoint.volumeClaim.size", "such as 10Gi"),
    (("spec", "checkpoint"), {"volumeClaim": {"size": 10}}, "spec.checkpoint.volumeClaim.size", "type string"),
    (
        ("spec", "checkpoint"),
        {"volumeClaim": {"size": "1Gi", "accessModes": ["ReadOnlyMany"]}},
        "spec.checkpoint.volumeClaim.accessModes[0]",
        'supported values: "ReadWriteMany", "ReadWriteOnce"',
    ),
    (("spec", "checkpoint"), {"inMemory": "all"}, "spec.checkpoint.inMemory", "supported values"),
    (("spec", "network", "probeInterval"), "2", "spec.network.probeInterval", "write a duration such as"),
    (("spec", "network", "probeInterval"), "50ms", "spec.network.probeInterval", "at least 100ms"),
    (("spec", "network", "probeInterval"), "99999us", "spec.network.probeInterval", "at least 100ms"),
    (("spec", "network", "probeBudget"), 0.9, "spec.network.probeBudget", "less than or equal to 0.5"),
    (("spec", "target"), {"metric": "loss"}, "spec.target.value", "Required value"),
    ((*TRAINER, "env"), [{"name": "A="}], "spec.template.spec.containers[0].env", "ASCII without ="),
    ((*TRAINER, "env"), [{"name": ""}], "spec.template.spec.containers[0].env", "ASCII without ="),
    ((*TRAINER, "env"), [{"value": "x"}], "spec.template.spec.containers[0].env[0].name", "Required"),
    ((*TRAINER, "env"), {"A": "b"}, "spec.template.spec.containers[0].env", "unknown field"),
    ((*TRAINER, "env"), [{"name": "A", "value": 3}], "spec.template.spec.containers[0].env[0].value", "string"),
    ((*TRAINER, "workingDir"), 3, "spec.template.spec.containers[0].workingDir", "string"),
    ((*COMMUNICATION, "fusion"), {"bufferSize": "0MB"}, "spec.communication.fusion.bufferSize", "holds nothing"),
    ((*COMMUNICATION, "collectives"), ["spardl:teams"], "spec.communication.collectives[0]", "spardl:teams=auto"),
    ((*COMMUNICATION, "collectives"), ["all-gather", "all-gather"], "spec.communication.collectives[1]", "Duplicate"),
    ((*COMMUNICATION, "ratio"), {"candidates": [0.1, 0.1]}, "spec.communication.ratio.candidates[1]", "Duplicate"),
    ((*COMMUNICATION, "warmupSteps"), 10**7, "spec.communication.warmupSteps", "1000000"),
    (("spec", "maxRestarts"), 10**7, "spec.maxRestarts", "10000"),
    (("spec", "ttlSecondsAfterFinished"), 10**9, "spec.ttlSecondsAfterFinished", "31536000"),
    (("spec", "target"), {"value": 1.97}, "spec.target.value", "accuracy is a share"),
    (("spec", "target"), {"value": 0}, "spec.target.value", "accuracy is a share"),
]

#: Refused where there are pods; on one machine nothing reads these.
REFUSED_ON_A_CLUSTER = [
    ((*TRAINER, "image"), REMOVED, "spec.template.spec.containers[0].image", "needs an image on a cluster"),
    (
        (*TRAINER, "env"),
        [{"name": "RANK", "value": "0"}],
        "spec.template.spec.containers[0].env",
        "a variable that the launcher sets; remove it",
    ),
    ((*POD, "affinity"), [[], []], "spec.template.spec.affinity", "must be of type object"),
    ((*POD, "nodeSelektor"), {"a": "b"}, "spec.template.spec.nodeSelektor", "unknown field"),
    ((*TRAINER, "env"), [{"name": "A"}] * 257, "spec.template.spec.containers[0].env", "at most 256 items"),
    (
        (*TRAINER, "resources"),
        {"limits": {"cpu": []}},
        "spec.template.spec.containers[0].resources.limits.cpu",
        "must be",
    ),
    ((*POD, "restartPolicy"), "OnFailure", "spec.template.spec.restartPolicy", "set spec.restartPolicy instead"),
    ((*POD, "hostname"), "me", "spec.template.spec.hostname", "remove it"),
    ((*POD, "subdomain"), "us", "spec.template.spec.subdomain", "remove it"),
    (
        (*POD, "initContainers"),
        [{"name": "netmon", "image": "i"}],
        "spec.template.spec.initContainers",
        "choose another",
    ),
    (
        (*POD, "containers"),
        [*GOOD["spec"]["template"]["spec"]["containers"], {"name": "netmon", "image": "i"}],
        "spec.template.spec.containers",
        "choose another",
    ),
    (
        (*POD, "volumes"),
        [{"name": "trimtab-tls", "emptyDir": {}}],
        "spec.template.spec.volumes",
        "choose another",
    ),
]

GOOD_CHANGES = [
    (COMMUNICATION, {"policy": "Static", "plan": "dense"}),
    (COMMUNICATION, {"policy": "Static", "plan": "1e-3/artopk-var-tree"}),
    (COMMUNICATION, {"policy": "Static", "plan": "dense-ring:per_host=1"}),
    (COMMUNICATION, {"policy": "Static", "plan": "0.01/spardl:per_host=1:residual=local/source=update:steps=8"}),
    ((*COMMUNICATION, "fusion"), {"bufferSize": "single"}),
    ((*COMMUNICATION, "fusion"), {"alternatives": ["single", "equal:buffers=5:selection=ahead"]}),
    ((*COMMUNICATION, "sparsifierAlternatives"), ["topk", "random-k"]),
    ((*COMMUNICATION, "schedules"), ["after-backward", "wait-free"]),
    ((*COMMUNICATION, "fusion"), {"bufferSize": ".5 MB"}),
    ((*COMMUNICATION, "timeout"), "1000ms"),
    ((*COMMUNICATION, "timeout"), "24h"),
    (("spec", "network", "probeInterval"), "100ms"),
    (("spec", "checkpoint"), {"path": "s3://bucket/job", "interval": "1000 ms"}),
    (("spec", "checkpoint"), {"path": "sftp://me@host:22/job@home", "fromJob": "digits-before"}),
    (("spec", "checkpoint"), {"path": "sftp://me@host:22/job@home"}),
    (("spec", "checkpoint"), {"volumeClaim": {"existing": "my.claim-1"}}),
    (
        ("spec", "checkpoint"),
        {"volumeClaim": {"size": "1.5Gi", "storageClassName": "", "accessModes": ["ReadWriteOnce"]}},
    ),
    (("spec", "checkpoint"), {"inMemory": "neighbour", "inMemoryInterval": "1s", "inMemoryBytes": "3 GB"}),
    (("spec", "network", "probeInterval"), "1 min"),
    (("spec", "target"), {"value": 1}),
    (("spec", "template", "metadata"), {"labels": None, "annotations": {"a": "b"}}),
    ((*TRAINER, "ports"), None),
    (
        POD,
        {
            "containers": [
                {"name": "helper", "image": "h"},
                {"name": "trainer", "image": "t", "command": ["t"], "env": [{"name": "MINE", "value": "1"}]},
            ],
            "hostNetwork": True,
            "schedulerName": "gang",
            "priorityClassName": "high",
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "trimtab-run", "emptyDir": {}}],
        },
    ),
]


def with_change(path, value):
    """The good manifest with one field set, or removed."""
    job = copy.deepcopy(GOOD)
    *parents, last = path
    place = job
    for step in parents:
        place = place[step]
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return job


def try_to_create(api, job):
    """As ``kubectl apply --dry-run=server`` asks the API server, without the start of a process for each job."""
    as_kubectl = {"dryRun": "All", "fieldValidation": "Strict"}
    api.send("POST", TRAINING_JOBS.path("default"), query=as_kubectl, body=job)


@pytest.mark.parametrize(("path", "value", "field", "remedy"), [*REFUSED_EVERYWHERE, *REFUSED_ON_A_CLUSTER])
def test_a_malformed_manifest_is_refused_with_field_and_remedy(control_plane, api, path, value, field, remedy):
    with pytest.raises(RefusedError) as refused:
        try_to_create(api, with_change(path, value))
    assert field in str(refused.value)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(("path", "value", "field", "remedy"), [REFUSED_EVERYWHERE[0], REFUSED_ON_A_CLUSTER[0]])
def test_kubectl_shows_field_and_remedy(control_plane, path, value, field, remedy):
    job = json.dumps(with_change(path, value))
    refused = control_plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=job)
    assert refused.returncode != 0
    assert field in refused.stderr
    assert remedy in refused.stderr


@pytest.mark.parametrize(("path", "value", "field", "remedy"), REFUSED_EVERYWHERE)
def test_what_a_cluster_refuses_a_file_is_refused_for_too(path, value, field, remedy):
    with pytest.raises(ValidationError):
        TrainingJob.model_validate(with_change(path, value))


@pytest.mark.parametrize(("path", "value"), GOOD_CHANGES)
def test_a_good_manifest_is_taken_by_both(control_plane, api, path, value):
    job = with_change(path, value)
    TrainingJob.model_validate(job)
    try_to_create(api, job)


def test_defaults_are_filled_in_and_are_those_of_a_file(control_plane, namespace):
    namespace.create("digits")
    on_cluster = TrainingJob.model_validate(namespace.job("digits"))
    in_a_file = TrainingJob.model_validate(namespace.manifest("digits"))
    assert on_cluster.spec == in_a_file.spec
    assert namespace.job("digits")["spec"]["communication"]["ratio"]["max"] == 0.1


MUTABLE = {
    "suspend": True,
    "maxRestarts": 9,
    "maxDisruptions": 9,
    "activeDeadlineSeconds": 99,
    "ttlSecondsAfterFinished": 9,
}
IMMUTABLE = {
    "workers": 3,
    "processesPerWorker": 2,
    "seed": 1,
    "template": {"spec": {"nodeSelector": {"a": "b"}}},
    "communication": {"speedWeight": 0.9},
    "network": {"probeInterval": "3s"},
    "target": {"value": 0.5},
    "restartPolicy": "Never",
    "managedBy": "example.com/other",
    "checkpoint": {"path": "/c"},
}


IN_METADATA, IN_POD = ("metadata",), ("spec",)
IN_TRAINER, IN_HELPER = (*IN_POD, "containers", 0), (*IN_POD, "initContainers", 0)
IN_VARIABLE, IN_VOLUME = (*IN_TRAINER, "env", 0), (*IN_POD, "volumes", 0)

#: Where in the template, the field that goes, and the one that comes in its place, so that the number stays.
SWAPS = [
    (IN_METADATA, "labels", ("annotations", {"a": "b"})),
    ((*IN_METADATA, "labels"), "app", ("team", "b")),
    (IN_POD, "nodeSelector", ("tolerations", [{"operator": "Exists"}])),
    ((*IN_POD, "nodeSelector"), "zone", ("pool", "b")),
    (IN_TRAINER, "resources", ("ports", [{"containerPort": 1}])),
    ((*IN_TRAINER, "resources", "limits"), "cpu", ("memory", "1Gi")),
    (IN_VARIABLE, "valueFrom", ("value", "b")),
    ((*IN_VARIABLE, "valueFrom"), "fieldRef", ("secretKeyRef", {"name": "a", "key": "b"})),
    (IN_HELPER, "command", ("args", ["b"])),
    (IN_VOLUME, "emptyDir", ("hostPath", {"path": "/"})),
]


def full_template():
    pod_ip = {"fieldRef": {"fieldPath": "status.podIP"}}
    trainer = copy.deepcopy(GOOD["spec"]["template"]["spec"]["containers"][0])
    trainer |= {"resources": {"limits": {"cpu": "1"}}, "env": [{"name": "A", "valueFrom": pod_ip}]}
    return {
        "metadata": {"labels": {"app": "a"}, "creationTimestamp": None},
        "spec": {
            "containers": [trainer],
            "initContainers": [{"name": "helper", "image": "h", "command": ["a"]}],
            "nodeSelector": {"zone": "a"},
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }


@pytest.mark.parametrize(("path", "goes", "comes"), SWAPS)
def test_no_field_of_the_template_may_be_swapped_for_another(control_plane, namespace, path, goes, comes):
    namespace.create("digits", template=full_template())
    namespace.change("digits", suspend=True)  # what may change still may

    def replace() -> subprocess.CompletedProcess[str]:
        job = namespace.job("digits")
        place = job["spec"]["template"]
        for step in path:
            place = place[step]
        del place[goes]
        place[comes[0]] = comes[1]
        return control_plane.kubectl("replace", "-f", "-", stdin=json.dumps(job))

    refused = replace()
    for _ in range(20):  # the operator may write the status just before: a Conflict says nothing of the change
        if "(Conflict)" not in refused.stderr:
            break
        refused = replace()
    assert refused.returncode != 0, refused.stdout
    assert "spec.template: Invalid value" in refused.stderr
    assert "while the job exists" in refused.stderr


def patch(namespace, name, **spec):
    change = ("--type=merge", "-p", json.dumps({"spec": spec}))
    return namespace.control_plane.kubectl("patch", "tj", name, "-n", namespace.namespace, *change)


def test_only_what_an_operator_can_follow_may_change(namespace):
    namespace.create("digits")
    for field, value in IMMUTABLE.items():
        refused = patch(namespace, "digits", **{field: value})
        assert refused.returncode != 0, field
        assert f"spec.{field}" in refused.stderr
        assert "while the job exists" in refused.stderr
    namespace.create("kept", checkpoint={"path": "/c"})
    for change in ({"path": "/d"}, {"path": None, "volumeClaim": {"size": "1Gi"}}, None):
        refused = patch(namespace, "kept", checkpoint=change)
        assert "spec.checkpoint" in refused.stderr
        assert "while the job exists" in refused.stderr
    assert patch(namespace, "kept", workers=3).returncode == 0
    namespace.change("digits", **MUTABLE)
    assert {**namespace.job("digits")["spec"], **MUTABLE} == namespace.job("digits")["spec"]
