"""The common parts of all children: names, labels, and the owner with which they are deleted."""

from __future__ import annotations

from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.types import API_VERSION, KIND

from trimtab_operator.kube.labels import KUEUE_PREFIX, OUR_PREFIX, labels
from trimtab_operator.kube.resources import Object, Resource

#: Beginnings of the names of labels and annotations that children do not inherit.
_NOT_INHERITED = (
    OUR_PREFIX,
    KUEUE_PREFIX,
    "batch.kubernetes.io/",
    "job-name",
    "controller-uid",
    "kubectl.kubernetes.io/",
    "meta.helm.sh/",
    "helm.sh/",
    "argocd.argoproj.io/",
    "app.kubernetes.io/instance",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
)


def shared_name(job: str) -> str:
    """Return the name of all children but the Job and its Service, which are named as the TrainingJob."""
    return f"{job}-trimtab"


def inherited(job: TrainingJob) -> tuple[dict[str, str], dict[str, str]]:
    """Return the TrainingJob's labels and annotations that every child and pod gets, for policies and cost reports.

    Left out are those by which other programs would take a child for something else: for an object that they apply or
    queue themselves, or for another Job's pod.
    """
    return _inherited(job.metadata.labels), _inherited(job.metadata.annotations)


def _inherited(given: dict[str, str] | None) -> dict[str, str]:
    return {name: text for name, text in (given or {}).items() if not name.startswith(_NOT_INHERITED)}


def owned(resource: Resource, name: str, job: TrainingJob, namespace: str, uid: str) -> Object:
    """Return the head of a child's manifest."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    its_labels, annotations = inherited(job)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**its_labels, **labels(job.metadata.name)},
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [owner],
        },
    }


def name_conflict(kind: str, name: str, is_deleting: bool) -> str:
    """Return the message, with its remedy, for an object of someone else that has a child's name."""
    if is_deleting:
        return f"waits for the {kind} {name}, which is going"
    remedy = "delete it, or create this TrainingJob under another name"
    return f"waits for the {kind} {name} to go: it belongs to something else; {remedy}"


def tampered(kind: str, name: str) -> str:
    """Return the message, with its remedy, for an immutable child that somebody replaced."""
    return f"the {kind} {name} does not hold what the operator put there; delete it, and the operator makes another"
