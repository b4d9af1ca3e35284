"""What all children have in common: their names, their labels, and the owner with which they are deleted."""

from __future__ import annotations

from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.types import API_VERSION, KIND

from trimtab_operator.cluster.resources import Object, Resource
from trimtab_operator.labels import labels


def shared_name(job: str) -> str:
    """Name of the children that nobody looks up by hand: all but the Job and its Service, named as the TrainingJob."""
    return f"{job}-trimtab"


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


def in_the_way(kind: str, name: str, is_deleting: bool) -> str:
    """The message, with its remedy, where an object of someone else has a child's name; it is never written to."""
    if is_deleting:
        return f"waits for the {kind} {name}, which is going"
    remedy = "delete it, or create this TrainingJob under another name"
    return f"waits for the {kind} {name} to go: it belongs to something else; {remedy}"


def spoilt(kind: str, name: str) -> str:
    """The message, with its remedy, where somebody replaced a child that cannot be written to."""
    return f"the {kind} {name} does not hold what the operator put there; delete it, and the operator makes another"
