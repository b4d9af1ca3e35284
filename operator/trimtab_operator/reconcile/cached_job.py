"""The part of a TrainingJob that the cache keeps: what decisions read.

A template may hold 1.4 MB of text, which take 34 MB once decoded, and a tenant may create many such jobs. So the cache
keeps no template: it is read again where a child is made of it. ``metadata.generation`` tells one spec from another.
"""

from __future__ import annotations

import json

from trimtab_api.errors import UserError
from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.load import read_training_job
from trimtab_api.trainingjob.pod_template import TRAINER_CONTAINER

from trimtab_operator.kube.labels import KUEUE_QUEUE, OPERATOR
from trimtab_operator.kube.resources import Object

#: Most bytes of JSON that a spec may have beside its template; the longest honest one has about a tenth of that.
MOST_SPEC_BYTES = 16 * 1024
#: Most bytes of JSON that it may have with its template. To decode and copy more would keep the processor from all
#: else, the renewal of the lease included, and the API server takes seconds to read it; half of what a Secret may hold.
MOST_WHOLE_BYTES = 512 * 1024

_METADATA = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
#: Where `shrink` leaves what is wrong with a spec that is too large.
_TOO_LARGE = "trimtabTooLarge"
#: Stands where the cache has no template.
_NO_TEMPLATE = {"spec": {"containers": [{"name": TRAINER_CONTAINER, "command": ["not read"]}]}}


def shrink(resource: Object) -> None:
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
    """What is wrong with a job of so many bytes, of which ``spec_bytes`` are the spec without its template."""
    if spec_bytes > MOST_SPEC_BYTES:
        return f"has {spec_bytes} bytes beside the template, and the operator reads {MOST_SPEC_BYTES}; shorten it"
    if whole_bytes > MOST_WHOLE_BYTES:
        remedy = "put what is long into the image, a ConfigMap or a volume"
        return f"has {whole_bytes} bytes with its template, and the operator reads {MOST_WHOLE_BYTES}; {remedy}"
    return None


def _num_bytes(value: Object) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))


def read_cached(resource: Object) -> TrainingJob:
    """The TrainingJob as decisions read it, with a template that says nothing.

    Raises:
        UserError: if the spec cannot be read. Unknown fields are ignored: the API server has checked the spec, by a
            definition that may be of a newer version.
    """
    spec = resource["spec"]
    if _TOO_LARGE in spec:
        raise UserError(spec[_TOO_LARGE], field="spec")
    return read_training_job({**resource, "spec": {**spec, "template": _NO_TEMPLATE}}, ignore_unknown=True)
