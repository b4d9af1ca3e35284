"""The pods of each job, as the watch last told of them."""

from __future__ import annotations

import threading

from trimtab_operator.decisions.pods import Pod
from trimtab_operator.kube.resources import Object, controller_name, object_key


class PodCache:
    """Pods by the Job that made them, and whether an event of a pod says anything new to `Pod`.

    The Job is the pod's controller: anybody may edit a pod's labels.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_job: dict[str, dict[str, Object]] = {}
        self._job_of: dict[str, str] = {}
        """The job that each pod last belonged to; an orphaned pod belongs to none."""

    def put(self, pod: Object) -> bool:
        """Keep a pod; whether it differs from the pod kept before in what `Pod` reads."""
        metadata = pod["metadata"]
        job = object_key(metadata["namespace"], controller_name(pod))
        with self._lock:
            before = self._take(metadata)
            self._by_job.setdefault(job, {})[metadata["name"]] = pod
            self._job_of[object_key(metadata["namespace"], metadata["name"])] = job
        return before is None or Pod.read(before) != Pod.read(pod)

    def remove(self, pod: Object) -> None:
        """Forget a pod."""
        with self._lock:
            self._take(pod["metadata"])

    def _take(self, metadata: Object) -> Object | None:
        """Remove the pod of that name and return it; None if there was none."""
        job = self._job_of.pop(object_key(metadata["namespace"], metadata["name"]), None)
        if job is None:
            return None
        of_job = self._by_job[job]
        pod = of_job.pop(metadata["name"])
        if not of_job:
            del self._by_job[job]
        return pod

    def of(self, namespace: str, name: str) -> list[Object]:
        """The pods of a job."""
        with self._lock:
            return list(self._by_job.get(object_key(namespace, name), {}).values())
