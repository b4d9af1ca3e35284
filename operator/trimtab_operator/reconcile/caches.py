"""The operator's caches of TrainingJobs, their Jobs and their pods, cut down to what the operator reads.

A template may hold 1.4 MB of text, which takes 34 MB once decoded, and a tenant may create many such jobs. So the cache
keeps no template: the operator reads it again when it makes a child of it. ``metadata.generation`` tells one spec from
another.
"""

from __future__ import annotations

import json
import threading

from trimtab_api.errors import UserError
from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.load import read_training_job
from trimtab_api.trainingjob.pod_template import TRAINER_CONTAINER

from trimtab_operator.decisions.pods import Pod
from trimtab_operator.kube.labels import ATTEMPT, JOB_NAME, KUEUE_QUEUE, MANAGED_BY, OPERATOR, SUSPENDED
from trimtab_operator.kube.resources import Object, controller_name, object_key

#: Most bytes of JSON that a spec may have beside its template; the longest honest one has about a tenth of that.
MOST_SPEC_BYTES = 16 * 1024
#: Most bytes of JSON that it may have with its template. To decode and copy more would keep the processor from all
#: else, the renewal of the lease included, and the API server takes seconds to read it; half of what a Secret may hold.
MOST_WHOLE_BYTES = 512 * 1024

_METADATA = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
#: Field in which `trim_training_job` leaves the error of a spec that is too large.
_TOO_LARGE = "trimtabTooLarge"
#: The template of every cached job.
_NO_TEMPLATE = {"spec": {"containers": [{"name": TRAINER_CONTAINER, "command": ["not read"]}]}}


def trim_training_job(resource: Object) -> None:
    """Cut a TrainingJob down, in place, to what decisions, the status and the metrics of jobs read."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    resource["metadata"] = {key: metadata[key] for key in _METADATA if key in metadata}
    queue = (metadata.get("labels") or {}).get(KUEUE_QUEUE)
    if queue is not None:
        resource["metadata"]["labels"] = {KUEUE_QUEUE: queue}
    kept = {key: value for key, value in spec.items() if key != "template"}
    error = size_error(_num_bytes(spec), _num_bytes(kept))
    if error is not None:
        manager = spec.get("managedBy", OPERATOR)  # whose affair the job is
        kept = {_TOO_LARGE: error, "managedBy": manager if manager == OPERATOR else "another"}
    resource["spec"] = kept


def size_error(whole_bytes: int, spec_bytes: int = 0) -> str | None:
    """Return why a job is too large to read; None if it is not.

    Args:
        whole_bytes: Size of the job's JSON.
        spec_bytes: Size of its spec without the template.
    """
    if spec_bytes > MOST_SPEC_BYTES:
        return f"has {spec_bytes} bytes beside the template, and the operator reads {MOST_SPEC_BYTES}; shorten it"
    if whole_bytes > MOST_WHOLE_BYTES:
        remedy = "put what is long into the image, a ConfigMap or a volume"
        return f"has {whole_bytes} bytes with its template, and the operator reads {MOST_WHOLE_BYTES}; {remedy}"
    return None


def _num_bytes(value: Object) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))


def read_cached(resource: Object) -> TrainingJob:
    """Return the TrainingJob as decisions read it, with an empty template.

    Raises:
        UserError: if the spec cannot be read. Unknown fields are ignored: the API server has checked the spec, by a
        definition that may be of a newer version.
    """
    spec = resource["spec"]
    if _TOO_LARGE in spec:
        raise UserError(spec[_TOO_LARGE], field="spec")
    return read_training_job({**resource, "spec": {**spec, "template": _NO_TEMPLATE}}, ignore_unknown=True)


#: Anybody may make a Job with our labels, of any size.
_JOB_METADATA = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
_LABELS = (JOB_NAME, MANAGED_BY, ATTEMPT, KUEUE_QUEUE)
_STATUS = ("conditions", "startTime", "active", "ready", "succeeded", "failed")


def trim_batch_job(job: Object) -> None:
    """Cut a Job down, in place, to what the operator reads of it."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    owners = [owner for owner in metadata.get("ownerReferences", ()) if owner.get("controller")]
    job["metadata"] = {key: metadata[key] for key in _JOB_METADATA if key in metadata}
    job["metadata"]["labels"] = _kept(metadata.get("labels"), _LABELS)
    job["metadata"]["annotations"] = _kept(metadata.get("annotations"), (SUSPENDED,))
    job["metadata"]["ownerReferences"] = [
        {key: owner[key] for key in ("name", "uid", "controller")} for owner in owners
    ]
    labels = spec.get("template", {}).get("metadata", {}).get("labels")
    job["spec"] = {
        "suspend": spec.get("suspend", False),
        "completions": spec.get("completions"),
        "template": {"metadata": {"labels": _kept(labels, (JOB_NAME, ATTEMPT))}},
    }
    job["status"] = _kept(status, _STATUS)


def _kept(found: Object | None, names: tuple[str, ...]) -> Object:
    return {name: found[name] for name in names if name in found} if found else {}


class PodCache:
    """Pods by the Job that made them, with a check whether an event of a pod changes what `Pod` reads.

    The Job is the pod's controller: anybody may edit a pod's labels.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_job: dict[str, dict[str, Object]] = {}
        self._job_of: dict[str, str] = {}
        """The job that each pod last belonged to; an orphaned pod belongs to none."""

    def put(self, pod: Object) -> bool:
        """Keep a pod; return whether it differs from the pod kept before in what `Pod` reads."""
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
        """Return the pods of a job."""
        with self._lock:
            return list(self._by_job.get(object_key(namespace, name), {}).values())
