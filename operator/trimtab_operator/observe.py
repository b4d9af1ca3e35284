"""What is known of one TrainingJob before anything is decided: what the watches have seen, or the API server says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from trimtab_operator.cached_job import read_cached, shrink
from trimtab_operator.cluster.api import Api
from trimtab_operator.cluster.resources import JOBS, PODS, TRAINING_JOBS, Object, controller_kind, controller_name
from trimtab_operator.labels import JOB_NAME, is_queued
from trimtab_operator.observed_state import Child, ObservedState
from trimtab_operator.pods import Pod
from trimtab_operator.policies.progress import Progress
from trimtab_operator.refused_pods import RefusedPods
from trimtab_operator.trainer_message import TrainerMessage
from trimtab_operator.written_status import read_status


class Cache(Protocol):
    """What the watches have seen."""

    def job(self, namespace: str, name: str) -> Object | None:
        """The TrainingJob of that name."""
        ...

    def child(self, namespace: str, name: str) -> Object | None:
        """The Job of that name."""
        ...

    def pods(self, namespace: str, name: str) -> list[Object]:
        """The pods of that job."""
        ...


class Training(Protocol):
    """What rank 0 of each job reports."""

    def latest(self, uid: str) -> TrainerMessage | None:
        """Its last message; None before the first."""
        ...

    def progress(self, uid: str) -> Progress:
        """How far it has got in this attempt."""
        ...

    def silence(self, uid: str) -> str:
        """Why rank 0 has not been heard for long; empty while it is heard."""
        ...

    def follow(self, observed: ObservedState) -> None:
        """Follow rank 0 while the job runs, and stop when it does not."""
        ...

    def forget(self, namespace: str, name: str) -> None:
        """The job is gone."""
        ...


class Observer:
    """Looks at jobs. Many threads may call it, but no two for the same job at a time."""

    def __init__(
        self,
        api: Api,
        cache: Cache,
        training: Training,
        refused_pods: RefusedPods,
        clock: Callable[[], datetime],
        is_outdated: Callable[[str, Object], bool],
    ) -> None:
        """``is_outdated``: whether a copy of the job of that key is from before its status was last written."""
        self._api, self._cache, self._training = api, cache, training
        self._refused_pods, self._clock, self._is_outdated = refused_pods, clock, is_outdated

    def get(self, namespace: str, name: str) -> Object | None:
        """The job as last seen; asked for anew where that is from before the status was last written.

        A decision taken from an older status could start an attempt that is over.
        """
        resource = self._cache.job(namespace, name)
        if resource is None:
            return None
        if self._is_outdated(f"{namespace}/{name}", resource):
            resource = self._api.get(TRAINING_JOBS, namespace, name)
            if resource is not None:
                shrink(resource)
        return resource

    def observe(self, resource: Object) -> ObservedState:
        """All that is known of the job. Raises `UserError` where its spec cannot be read."""
        metadata = resource["metadata"]
        namespace, uid = metadata["namespace"], metadata["uid"]
        job = read_cached(resource)
        found = self._child(resource)
        child = Child.read(found) if found else None
        found_pods = self._pods(resource, child)
        pods = [Pod.read(each) for each in found_pods]
        of_attempts = [Pod.read(each) for each in found_pods if _is_of_an_attempt(each, job.metadata.name)]
        observed = ObservedState(
            job=job,
            namespace=namespace,
            uid=uid,
            generation=metadata["generation"],
            is_queued=is_queued((found or resource)["metadata"].get("labels", {})),
            status=read_status(resource),
            child=child,
            pods=tuple(each for each in pods if child is not None and each.owner_uid == child.uid),
            earlier_pods=tuple(each for each in of_attempts if child is None and not each.has_ended),
            training=self._training.latest(uid),
            silence=self._training.silence(uid),
            now=self._clock(),
            progress=self._training.progress(uid),
        )
        refusal = self._refused_pods.why(observed)
        return replace(
            observed, refusal=refusal, missing_pods_seconds=self._refused_pods.missing_pods_seconds(observed)
        )

    def _child(self, resource: Object) -> Object | None:
        """The Job of that name; asked for where the watch shows none of a job that something is known of.

        The watch does not show a Job that has lost its labels, nor one that was never ours.
        """
        namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
        found = self._cache.child(namespace, name)
        if found is None and resource.get("status"):
            return self._api.get(JOBS, namespace, name)
        return found

    def _pods(self, resource: Object, child: Child | None) -> list[Object]:
        """The job's pods; asked for anew where more depends on them than the cache may know by now.

        That is when the Job has failed, and why; and when an attempt's Job is gone: the next must not meet its pods.
        """
        namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
        depends = "startTime" in resource.get("status", {}) if child is None else child.failure is not None
        if not depends:
            return self._cache.pods(namespace, name)
        found: list[Object] = self._api.list(PODS, namespace, labelSelector=f"{JOB_NAME}={name}")["items"]
        names = {each["metadata"]["name"] for each in found}
        # One whose label somebody has edited is seen by its controller alone.
        return found + [each for each in self._cache.pods(namespace, name) if each["metadata"]["name"] not in names]


def _is_of_an_attempt(pod: Object, name: str) -> bool:
    """Whether a pod with the job's label is a worker of it; anybody may give a pod that label.

    A Job of the job's name controls it. Or nobody does, since its Job was deleted without it, and it still answers to a
    worker's DNS name.
    """
    if controller_kind(pod):
        return (controller_kind(pod), controller_name(pod)) == (JOBS.kind, name)
    spec = pod.get("spec", {})
    return spec.get("subdomain") == name and str(spec.get("hostname", "")).startswith(f"{name}-")
