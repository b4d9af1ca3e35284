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

from trimtab_operator.cluster.resources import Object
from trimtab_operator.labels import KUEUE_QUEUE

#: Most bytes of JSON that a spec may have beside its template; the longest honest one has about a tenth of that.
MOST_SPEC_BYTES = 16 * 1024

_METADATA = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
#: Where `shrink` leaves the size of a spec that has more than `MOST_SPEC_BYTES`.
_TOO_LARGE = "trimtabSpecBytes"
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
    num_bytes = len(json.dumps(kept, ensure_ascii=False).encode(errors="replace"))
    if num_bytes > MOST_SPEC_BYTES:
        kept = {_TOO_LARGE: num_bytes}
    resource["spec"] = kept


def read_cached(resource: Object) -> TrainingJob:
    """The TrainingJob as decisions read it, with a template that says nothing.

    Raises:
        UserError: if the spec cannot be read. Unknown fields are ignored: the API server has checked the spec, by a
            definition that may be of a newer version.
    """
    spec = resource["spec"]
    if _TOO_LARGE in spec:
        remedy = f"{spec[_TOO_LARGE]} bytes beside the template, and the operator reads {MOST_SPEC_BYTES}; shorten it"
        raise UserError(f"has {remedy}", field="spec")
    return read_training_job({**resource, "spec": {**spec, "template": _NO_TEMPLATE}}, ignore_unknown=True)
