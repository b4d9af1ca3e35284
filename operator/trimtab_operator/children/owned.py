"""What all children have in common: their names, their labels, and their owner, with whom they go."""

from __future__ import annotations

from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.types import API_VERSION, KIND

from trimtab_operator.cluster.resources import Object, Resource
from trimtab_operator.labels import JOB_NAME, MANAGED_BY, MANAGER


def shared_name(job: str) -> str:
    """Name of the children that nobody looks up by hand: all but the Job and its Service, named as the TrainingJob."""
    return f"{job}-trimtab"


def labels(job: str) -> dict[str, str]:
    """Labels of every child."""
    return {JOB_NAME: job, MANAGED_BY: MANAGER}


def owned(resource: Resource, name: str, job: TrainingJob, namespace: str, uid: str) -> Object:
    """The head of a child's manifest."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels(job.metadata.name),
            "ownerReferences": [owner],
        },
    }
