"""The part of a Job that the cache keeps: what `Child` and its reader read. Anybody may make a Job with our labels."""

from __future__ import annotations

from trimtab_operator.kube.labels import ATTEMPT, JOB_NAME, KUEUE_QUEUE, MANAGED_BY, SUSPENDED
from trimtab_operator.kube.resources import Object

_METADATA = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
_LABELS = (JOB_NAME, MANAGED_BY, ATTEMPT, KUEUE_QUEUE)
_STATUS = ("conditions", "startTime", "active", "ready", "succeeded", "failed")


def shrink(job: Object) -> None:
    """Cut a Job down, in place, to what is read of it."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    owners = [each for each in metadata.get("ownerReferences", ()) if each.get("controller")]
    job["metadata"] = {key: metadata[key] for key in _METADATA if key in metadata}
    job["metadata"]["labels"] = _kept(metadata.get("labels"), _LABELS)
    job["metadata"]["annotations"] = _kept(metadata.get("annotations"), (SUSPENDED,))
    job["metadata"]["ownerReferences"] = [{key: each[key] for key in ("name", "uid", "controller")} for each in owners]
    labels = spec.get("template", {}).get("metadata", {}).get("labels")
    job["spec"] = {
        "suspend": spec.get("suspend", False),
        "template": {"metadata": {"labels": _kept(labels, (JOB_NAME, ATTEMPT))}},
    }
    job["status"] = _kept(status, _STATUS)


def _kept(found: Object | None, names: tuple[str, ...]) -> Object:
    return {name: found[name] for name in names if name in found} if found else {}
