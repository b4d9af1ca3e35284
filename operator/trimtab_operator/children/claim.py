"""The volume claim of a job's checkpoints: the user's, or one that is made for the job and deleted with it."""

from __future__ import annotations

from trimtab_api.names import CHECKPOINT_DIRECTORY
from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.types import VolumeClaim

from trimtab_operator.children.owned import owned, shared_name
from trimtab_operator.kube.resources import CLAIMS, Object

_FIELD = "spec.checkpoint.volumeClaim"
#: Every worker writes its part of a checkpoint.
_USUAL_MODES = ("ReadWriteMany",)
_READ_ONLY = "ReadOnlyMany"


def _asked(job: TrainingJob) -> VolumeClaim | None:
    return None if job.spec.checkpoint is None else job.spec.checkpoint.volume_claim


def claim_name(job: TrainingJob) -> str | None:
    """Return the name of the claim that the job's pods mount; None if they mount none."""
    asked = _asked(job)
    return None if asked is None else asked.existing or shared_name(job.metadata.name)


def checkpoint_path(job: TrainingJob) -> str:
    """Return where the job's checkpoints are on a claim: several jobs may share one."""
    return f"{CHECKPOINT_DIRECTORY}/{job.metadata.name}"


def claim(job: TrainingJob, namespace: str, uid: str) -> Object | None:
    """Return the claim that is made for the job; None if it has none of its own.

    It is never applied again: its owner may have made it larger by hand.
    """
    asked = _asked(job)
    if asked is None or asked.size is None:
        return None
    spec: Object = {
        "accessModes": list(asked.access_modes or _USUAL_MODES),
        "resources": {"requests": {"storage": asked.size}},
    }
    if asked.storage_class_name is not None:
        spec["storageClassName"] = asked.storage_class_name
    return {**owned(CLAIMS, shared_name(job.metadata.name), job, namespace, uid), "spec": spec}


def claim_problem(name: str, namespace: str, found: Object | None) -> str | None:
    """Return why no checkpoint can be kept on the user's claim, with the remedy; None if one can."""
    place = f"{_FIELD}.existing: {name}"
    if found is None:
        return f"{place}: namespace {namespace} has no such claim; create it, or write size for one that is made"
    if "deletionTimestamp" in found["metadata"]:
        return f"{place}: this claim is being deleted; create another once it has gone"
    if set(found["spec"].get("accessModes", ())) == {_READ_ONLY}:
        return f"{place}: this claim is read-only ({_READ_ONLY}); name one that workers may write to"
    return None
