"""The resolved TrainingJob as a file for the job's pods."""

from __future__ import annotations

import json

from trimtab_api.trainingjob import TrainingJob


def job_file(job: TrainingJob, namespace: str) -> str:
    """What a session reads: name, spec with every default filled in; not the status, nor what Kubernetes keeps."""
    resolved = job.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"})
    resolved["metadata"] = {"name": job.metadata.name, "namespace": namespace}
    return json.dumps(resolved)
