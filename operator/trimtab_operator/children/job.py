"""The Indexed Job whose pods are the workers."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab_api.names import attempt_name
from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.children.owned import owned
from trimtab_operator.children.pod import pod_template
from trimtab_operator.kube.labels import ATTEMPT, KUEUE_PREFIX, SUSPENDED, is_queued, labels
from trimtab_operator.kube.resources import JOBS, Object
from trimtab_operator.settings import Settings


def relabelled(job: str, namespace: str, name: str, uid: str, attempt: int) -> Object:
    """Return the labels with which the Job of this name and uid was made, to be applied.

    Nothing else of a Job is ever written again, except whether it is suspended. ``job`` is the name of its TrainingJob.
    """
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "labels": {**labels(job), ATTEMPT: str(attempt)},
        },
    }


def job_manifest(
    job: TrainingJob,
    namespace: str,
    uid: str,
    attempt: int,
    job_labels: dict[str, str],
    settings: Settings,
    account_pull_secrets: Sequence[Object] = (),
) -> Object:
    """Return the Job of one attempt: the first worker that fails ends it, because all ranks start again together.

    A pod that the cluster takes away does not count as failed. No pod is replaced before it has ended, or two processes
    would be the same rank. A Job in a queue is created suspended, so that it waits for admission whether or not Kueue's
    webhook sees it.

    Args:
        job: The TrainingJob.
        namespace: The namespace of the TrainingJob.
        uid: The uid of the TrainingJob.
        attempt: Number of restarts before this attempt.
        job_labels: The TrainingJob's labels; Kueue's pass through to the Job.
        settings: The operator's settings.
        account_pull_secrets: Pull secrets of the pods' ServiceAccount.
    """
    manifest = owned(JOBS, attempt_name(job.metadata.name, attempt), job, namespace, uid)
    queue = {name: value for name, value in job_labels.items() if name.startswith(KUEUE_PREFIX)}
    manifest["metadata"]["labels"] |= {ATTEMPT: str(attempt), **queue}
    if job.spec.suspend and not is_queued(job_labels):
        manifest["metadata"]["annotations"] = {**manifest["metadata"].get("annotations", {}), SUSPENDED: "true"}
    return {
        **manifest,
        "spec": {
            "completionMode": "Indexed",
            "completions": job.spec.workers,
            "parallelism": job.spec.workers,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "suspend": job.spec.suspend or is_queued(job_labels),
            "template": pod_template(job, namespace, attempt, settings, account_pull_secrets),
        },
    }
