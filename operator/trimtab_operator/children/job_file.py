"""The TrainingJob as a file for the job's pods."""

from __future__ import annotations

import json
from typing import Any

from trimtab_api.trainingjob import TrainingJob


def job_file(job: TrainingJob, namespace: str) -> str:
    """What a session reads: name, workers, template, and of the rest what differs from its default.

    A trainer image of another version fills in the defaults itself; a field with a new default is no news to an older
    one. The status is left out, and what Kubernetes keeps.
    """
    required = {"workers": job.spec.workers, "template": job.spec.template}
    head = {"apiVersion": job.api_version, "kind": job.kind, "metadata": {"name": job.metadata.name}}
    plain = TrainingJob.model_validate({**head, "spec": required})
    spec = {**required, **_differing(_dumped(job), _dumped(plain))}
    return json.dumps({**head, "metadata": {"name": job.metadata.name, "namespace": namespace}, "spec": spec})


def _dumped(job: TrainingJob) -> dict[str, Any]:
    return job.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"workers", "template"})


def _differing(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The values that differ from their defaults, at any depth."""
    differing = {}
    for name, value in values.items():
        default = defaults.get(name)
        if value != default:
            differing[name] = _differing(value, default) if isinstance(default, dict) else value
    return differing
