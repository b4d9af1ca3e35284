"""Labels and annotations of the operator's objects."""

from __future__ import annotations

from trimtab_api.trainingjob.types import API_VERSION

_GROUP = API_VERSION.split("/")[0]

#: Prefix of our own labels and annotations.
OUR_PREFIX = f"{_GROUP}/"
#: Value of spec.managedBy of the jobs that this operator looks after.
OPERATOR = f"{_GROUP}/operator"
#: Label of everything that belongs to a job: the job's name.
JOB_NAME = f"{_GROUP}/job-name"
#: Label of a Job and its pods: how many restarts there had been when they were made.
ATTEMPT = f"{_GROUP}/attempt"
#: Label of the pods beside a job's workers: what they are.
COMPONENT = f"{_GROUP}/component"
#: Kubernetes' label for who made an object, and our name there.
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "trimtab-operator"
#: Labels by which Kueue takes care of a Job; they pass through.
KUEUE_PREFIX = "kueue.x-k8s.io/"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
#: Annotation of a Job that spec.suspend, and nobody else, suspended: so the operator may resume it.
SUSPENDED = f"{_GROUP}/suspended"
#: Kubernetes' label of an Indexed Job's pod: its completion index.
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def labels(job: str) -> dict[str, str]:
    """Return the labels of everything that is made for a job."""
    return {JOB_NAME: job, MANAGED_BY: MANAGER}


def is_queued(labels: dict[str, str]) -> bool:
    """Return whether Kueue decides when the Job runs."""
    return KUEUE_QUEUE in labels
