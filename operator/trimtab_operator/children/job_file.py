"""The resolved TrainingJob as a file for the job's pods."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from trimtab_api.names import JOB_FILE
from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.children.owned import owned, shared_name
from trimtab_operator.cluster.resources import CONFIG_MAPS, Object


def job_file(job: TrainingJob, namespace: str, uid: str) -> Object:
    """What a session reads: name, spec with every default filled in; not the status, nor what Kubernetes keeps."""
    resolved = job.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"})
    resolved["metadata"] = {"name": job.metadata.name, "namespace": namespace}
    return {
        **owned(CONFIG_MAPS, shared_name(job.metadata.name), job, namespace, uid),
        "data": {PurePosixPath(JOB_FILE).name: json.dumps(resolved, indent=1)},
    }
