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
    """The labels with which the Job of this name and uid was made, to be applied; ``job`` is its TrainingJob.

    Nothing else of a Job is ever written again, except whether it is suspended.
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


def child_job(
    job: TrainingJob,
    namespace: str,
    uid: str,
    attempt: int,
    job_labels: dict[str, str],
    settings: Settings,
    account_pull_secrets: Sequence[Object] = (),
) -> Object:
    """One attempt at the whole job: the first worker that fails ends it, for all ranks start again together.

    A pod that the cluster takes away does not count as failed; nor is any replaced before it has ended, or two
    processes would be the same rank. ``job_labels`` are the TrainingJob's: Kueue's pass through, as `suspend` does; and
    a Job in a queue is born suspended in any case, so that it waits to be admitted whether or not Kueue's webhook sees
    it made.
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
