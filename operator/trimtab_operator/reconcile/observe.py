"""The observer of one TrainingJob: it combines what the watches have seen with answers of the API server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from trimtab_api.names import attempt_name, possible_jobs

from trimtab_operator.decisions.observed_state import BatchJob, ObservedState
from trimtab_operator.decisions.pod_creation_errors import PodCreationErrors
from trimtab_operator.decisions.pods import Pod
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.kube.api import Api
from trimtab_operator.kube.labels import JOB_NAME, is_queued
from trimtab_operator.kube.resources import (
    JOBS,
    PODS,
    TRAINING_JOBS,
    Object,
    controller_kind,
    controller_name,
    controller_uid,
)
from trimtab_operator.rank0.sanitize import Rank0Status
from trimtab_operator.reconcile.caches import read_cached, trim_training_job
from trimtab_operator.reconcile.nodes import Nodes
from trimtab_operator.status.parse import read_status


class Cache(Protocol):
    """The objects that the watches have seen."""

    def job(self, namespace: str, name: str) -> Object | None:
        """Return the TrainingJob of that name."""
        ...

    def batch_job(self, namespace: str, name: str) -> Object | None:
        """Return the Job of that name."""
        ...

    def pods(self, namespace: str, name: str) -> list[Object]:
        """Return the pods of the Job of that name."""
        ...


class Rank0Statuses(Protocol):
    """The reports of each job's rank 0."""

    def latest(self, uid: str) -> Rank0Status | None:
        """Return rank 0's last message; None before the first."""
        ...

    def progress(self, uid: str) -> Progress:
        """Return the progress in this attempt."""
        ...

    def unreachable_reason(self, uid: str) -> str:
        """Return why rank 0 has not reported for long; empty while it does."""
        ...

    def follow(self, observed: ObservedState) -> None:
        """Follow rank 0 while the job runs, and stop when it does not."""
        ...

    def forget(self, namespace: str, name: str) -> None:
        """Forget a job that is gone."""
        ...


class Observer:
    """An observer of jobs. Many threads may call it, but no two for the same job at a time."""

    def __init__(
        self,
        api: Api,
        cache: Cache,
        rank0: Rank0Statuses,
        pod_creation_errors: PodCreationErrors,
        clock: Callable[[], datetime],
        is_outdated: Callable[[str, Object], bool],
    ) -> None:
        """Observe through the API server and the caches.

        Args:
            api: The API server.
            cache: The objects that the watches have seen.
            rank0: The reports of each job's rank 0.
            pod_creation_errors: The reasons that keep workers from coming up.
            clock: Returns the present time.
            is_outdated: Returns whether a copy of a job, by its key, is from before its status was last written.
        """
        self._api, self._cache, self._rank0 = api, cache, rank0
        self._nodes = Nodes(api)
        self._pod_creation_errors, self._clock, self._is_outdated = pod_creation_errors, clock, is_outdated

    def get(self, namespace: str, name: str) -> Object | None:
        """Return the job as last seen, or as it is now if the copy is from before the status was last written.

        A decision taken from an older status could start an attempt that is over.
        """
        resource = self._cache.job(namespace, name)
        if resource is None:
            return None
        if self._is_outdated(f"{namespace}/{name}", resource):
            resource = self._api.get(TRAINING_JOBS, namespace, name)
            if resource is not None:
                trim_training_job(resource)
        return resource

    def observe(self, resource: Object) -> ObservedState:
        """Observe a job.

        Raises:
            UserError: If its spec cannot be read.
        """
        metadata = resource["metadata"]
        namespace, uid = metadata["namespace"], metadata["uid"]
        job = read_cached(resource)
        status = read_status(resource)
        jobs = self._jobs(resource, status.restarts)
        found = _of_attempt(jobs, attempt_name(metadata["name"], status.restarts), status.restarts, uid)
        batch_job = BatchJob.read(found) if found else None
        earlier = [BatchJob.read(each) for each in jobs if each is not found and controller_uid(each) == uid]
        listed = self._pods(resource, batch_job, [each.name for each in earlier])
        if batch_job is not None and any("deletionTimestamp" in pod["metadata"] for pod in listed):
            batch_job = self._read_again(namespace, batch_job)
        pods = [self._read_pod(pod, batch_job) for pod in listed if _is_of_an_attempt(pod, metadata["name"])]
        observed = ObservedState(
            job=job,
            namespace=namespace,
            uid=uid,
            generation=metadata["generation"],
            is_queued=is_queued((found or resource)["metadata"].get("labels", {})),
            status=status,
            batch_job=batch_job,
            pods=tuple(pod for pod in pods if batch_job is not None and pod.owner_uid == batch_job.uid),
            stale_pods=tuple(pod for pod in pods if batch_job is None and not pod.has_ended and not pod.node_is_lost),
            earlier_batch_jobs=tuple(earlier),
            rank0_status=self._rank0.latest(uid),
            unreachable_reason=self._rank0.unreachable_reason(uid),
            now=self._clock(),
            progress=self._rank0.progress(uid),
        )
        refusal = self._pod_creation_errors.explain(observed)
        return replace(
            observed,
            creation_error=refusal,
            missing_pods_seconds=self._pod_creation_errors.missing_pods_seconds(observed),
        )

    def _jobs(self, resource: Object, restarts: int) -> list[Object]:
        """Return the Jobs of this attempt and of the one before, this attempt's first, whoever owns them.

        A Job that the watch does not show is read from the API server if something is known of the job: the watch shows
        neither a Job that has lost its labels nor one that was never ours. The attempt before matters only until this
        one has its Job. A Job made by an operator that named all of them after the TrainingJob may be of any attempt.
        """
        namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
        names = dict.fromkeys((attempt_name(name, restarts), attempt_name(name, max(0, restarts - 1)), name))
        jobs: list[Object] = []
        for each in names:
            found = self._cache.batch_job(namespace, each)
            if found is None and not jobs and resource.get("status"):
                found = self._api.get(JOBS, namespace, each)
            jobs += [found] if found else []
        return jobs

    def _read_again(self, namespace: str, batch_job: BatchJob) -> BatchJob | None:
        """Read a Job again whose pods are being deleted.

        Suspending or deleting a Job deletes its pods, and the watch of pods may show that before the watch of Jobs.
        """
        if batch_job.is_suspended or batch_job.is_deleting or batch_job.failure is not None:
            return batch_job
        found = self._api.get(JOBS, namespace, batch_job.name)
        return BatchJob.read(found) if found else None

    def _read_pod(self, resource: Object, batch_job: BatchJob | None) -> Pod:
        """Return a pod, with whether its node is lost if that decides something.

        It does if the attempt is over, if its Job is gone, or if the pod is not ready.
        """
        pod = Pod.read(resource)
        decides = batch_job is None or batch_job.failure is not None or pod.is_unready
        if not decides or pod.node_is_lost or pod.has_ended or not pod.node:
            return pod
        return replace(pod, node_is_lost=self._nodes.is_unreachable(pod.node))

    def _pods(self, resource: Object, batch_job: BatchJob | None, earlier: list[str]) -> list[Object]:
        """Return the job's pods, read from the API server if more depends on them than the cache may know by now.

        More depends on them when the Job has failed, and when an attempt's Job is gone: the next attempt must not meet
        its pods. ``earlier`` holds the names of the Jobs of earlier attempts.
        """
        namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
        depends = "startTime" in resource.get("status", {}) if batch_job is None else batch_job.failure is not None
        if not depends:
            return self._cache.pods(namespace, batch_job.name) if batch_job else []
        found: list[Object] = self._api.list(PODS, namespace, labelSelector=f"{JOB_NAME}={name}")["items"]
        names = {item["metadata"]["name"] for item in found}
        # One whose label somebody has edited is seen by its controller alone.
        jobs = [batch_job.name] if batch_job else dict.fromkeys((name, *earlier))
        cached = [pod for job in jobs for pod in self._cache.pods(namespace, job)]
        return found + [pod for pod in cached if pod["metadata"]["name"] not in names]


def _of_attempt(jobs: list[Object], name: str, attempt: int, uid: str) -> Object | None:
    """Return the attempt's Job: the one with its name, or one of ours whose label names the attempt."""
    for job in jobs:
        if job["metadata"]["name"] == name:
            return job
    return next((job for job in jobs if controller_uid(job) == uid and BatchJob.read(job).attempt == attempt), None)


def _is_of_an_attempt(pod: Object, name: str) -> bool:
    """Return whether a pod with the job's label is one of its workers; anybody may give a pod that label.

    A Job with the name of one of the attempts controls a worker. If that Job was deleted without its pod, nothing
    controls the pod, and the pod still has a worker's DNS name.
    """
    if controller_kind(pod):
        return controller_kind(pod) == JOBS.kind and name in possible_jobs(controller_name(pod))
    spec = pod.get("spec", {})
    return spec.get("subdomain") == name and str(spec.get("hostname", "")).startswith(f"{name}-")
