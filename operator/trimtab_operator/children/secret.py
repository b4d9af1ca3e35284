"""The Secret that holds all files of the job's pods: certificates, and the job as they read it."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from trimtab_api.names import AUTHORITY_FILE, CERTIFICATE_FILE, JOB_FILE, KEY_FILE
from trimtab_api.rpc import certificate_authority
from trimtab_api.rpc.certificates import Certificates
from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.children.owned import owned, shared_name
from trimtab_operator.kube.resources import SECRETS, Object, controller_uid

#: Key of the resolved job.
JOB_KEY = PurePosixPath(JOB_FILE).name
_PEM_FILES = (AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE)


def secret(job: TrainingJob, namespace: str, uid: str, now: datetime) -> Object:
    """The only child that must not be applied again once it exists, because its certificates are new each time.

    Nor need it be: what may change of a job's spec is the operator's business, not its processes'.
    """
    issued = issue_certificates(job.metadata.name, namespace, now)
    files = {
        AUTHORITY_FILE: issued.authority,
        CERTIFICATE_FILE: issued.certificate,
        KEY_FILE: issued.key,
        JOB_KEY: job_file(job, namespace).encode(),
    }
    return {
        **owned(SECRETS, shared_name(job.metadata.name), job, namespace, uid),
        "immutable": True,
        "data": {name: base64.b64encode(content).decode() for name, content in files.items()},
    }


def is_intact(found: Object) -> bool:
    """Whether such a Secret holds what the operator put there; whoever may write Secrets may have replaced it."""
    return _files(found) is not None


def certificates_in(found: Object, uid: str) -> Certificates | None:
    """The certificates in such a Secret; None if it is not that of the TrainingJob of this uid, or is not intact."""
    files = _files(found)
    if files is None or controller_uid(found) != uid:
        return None
    return Certificates(authority=files[AUTHORITY_FILE], certificate=files[CERTIFICATE_FILE], key=files[KEY_FILE])


def _files(found: Object) -> dict[str, bytes] | None:
    """The files of a Secret by name; None where one is missing, or is not what its name says."""
    data = found.get("data") or {}
    try:
        files = {name: base64.b64decode(data[name], validate=True) for name in (*_PEM_FILES, JOB_KEY)}
    except (KeyError, ValueError):
        return None
    is_whole = files[JOB_KEY].startswith(b"{") and all(files[name].startswith(b"-----BEGIN ") for name in _PEM_FILES)
    return files if is_whole else None


def issue_certificates(job: str, namespace: str, now: datetime) -> Certificates:
    """Certificates by which the job's pods and the operator know each other; each worker has its Service's name."""
    domain = f"*.{job}.{namespace}.svc"
    return certificate_authority.issue(f"{namespace}/{job}", (domain, f"{domain}.cluster.local"), now)


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
