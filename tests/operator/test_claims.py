"""The volume claim of a job's checkpoints: made or looked for, mounted, and told to the trainer as a path."""

import pytest
from fixtures import SETTINGS, UID, job
from trimtab_api.trainingjob.load import parse_training_job
from trimtab_operator.children.claim import claim, claim_problem
from trimtab_operator.children.pod import pod_template
from trimtab_operator.children.secret import job_file

MADE = {"volumeClaim": {"size": "10Gi"}, "keep": 3}
EXISTING = {"volumeClaim": {"existing": "shared"}}
PATH = {"path": "/mnt/c"}
AT = "/var/run/trimtab/checkpoints"


def pod_with(checkpoint, **template):
    return pod_template(job(checkpoint=checkpoint, **template), "team", 0, SETTINGS)["spec"]


def test_the_claim_that_is_made_is_the_jobs_own_and_all_workers_may_write_to_it():
    made = claim(job(checkpoint=MADE), "team", UID)
    assert made["metadata"]["name"] == "digits-trimtab"
    assert [(owner["name"], owner["controller"]) for owner in made["metadata"]["ownerReferences"]] == [("digits", True)]
    assert made["spec"] == {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}


@pytest.mark.parametrize("storage_class", ["fast", ""])
def test_the_claim_that_is_made_is_of_the_class_that_the_job_names(storage_class):
    asked = {"size": "1Gi", "storageClassName": storage_class, "accessModes": ["ReadWriteOnce"]}
    spec = claim(job(checkpoint={"volumeClaim": asked}), "team", UID)["spec"]
    assert (spec["storageClassName"], spec["accessModes"]) == (storage_class, ["ReadWriteOnce"])


@pytest.mark.parametrize("checkpoint", [None, PATH, EXISTING])
def test_no_claim_is_made_that_nobody_asks_for(checkpoint):
    assert claim(job(checkpoint=checkpoint), "team", UID) is None


@pytest.mark.parametrize(("checkpoint", "claim_name"), [(MADE, "digits-trimtab"), (EXISTING, "shared")])
def test_the_trainer_mounts_the_claim_and_finds_its_folder_there_by_a_path(checkpoint, claim_name):
    pod = pod_with(checkpoint)
    volumes = {each["name"]: each for each in pod["volumes"]}
    (trainer,) = (each for each in pod["containers"] if each["name"] == "trainer")
    (volume,) = (each["name"] for each in trainer["volumeMounts"] if each["mountPath"] == AT)
    assert volumes[volume]["persistentVolumeClaim"] == {"claimName": claim_name}
    read = parse_training_job(job_file(job(checkpoint=checkpoint), "team")).spec.checkpoint
    assert (read.path, read.volume_claim, read.keep) == (f"{AT}/digits", None, checkpoint.get("keep", 2))


@pytest.mark.parametrize("checkpoint", [None, PATH])
def test_a_job_without_a_claim_mounts_none(checkpoint):
    pod = pod_with(checkpoint)
    assert not any("persistentVolumeClaim" in each for each in pod["volumes"])
    assert not any(mount["mountPath"] == AT for each in pod["containers"] for mount in each.get("volumeMounts", ()))


@pytest.mark.parametrize(
    ("checkpoint", "template", "seconds"),
    [
        (None, {}, None),
        (PATH, {}, 60),
        (PATH, {"terminationGracePeriodSeconds": 300}, 300),
        (PATH | {"onTermination": False}, {}, 30),
    ],
)
def test_a_pod_has_the_time_to_write_a_checkpoint_when_it_is_told_to_end(checkpoint, template, seconds):
    assert pod_with(checkpoint, pod=template).get("terminationGracePeriodSeconds") == seconds


def test_credentials_of_a_url_reach_the_trainer_from_a_secret():
    from_secret = [{"secretRef": {"name": "s3-credentials"}}]
    pod = pod_with({"path": "s3://bucket/digits"}, container={"envFrom": from_secret})
    (trainer,) = (each for each in pod["containers"] if each["name"] == "trainer")
    assert trainer["envFrom"] == from_secret


WRITABLE = {"metadata": {}, "spec": {"accessModes": ["ReadWriteMany", "ReadOnlyMany"]}}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "namespace team has no such claim; create it, or write size for one that is made"),
        (WRITABLE | {"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z"}}, "this claim is being deleted"),
        (WRITABLE | {"spec": {"accessModes": ["ReadOnlyMany"]}}, "this claim is read-only (ReadOnlyMany)"),
    ],
)
def test_a_claim_that_cannot_hold_checkpoints_is_told_with_the_remedy(found, says):
    problem = claim_problem("shared", "team", found)
    assert problem.startswith(f"spec.checkpoint.volumeClaim.existing: shared: {says}")


def test_a_claim_that_can_is_taken():
    assert claim_problem("shared", "team", WRITABLE) is None
