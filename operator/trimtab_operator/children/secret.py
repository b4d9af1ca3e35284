"""The Secret that holds all files of the job's pods: certificates, and the job as they read it."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from trimtab_api.names import AUTHORITY_FILE, CERTIFICATE_FILE, JOB_FILE, KEY_FILE, keeper_host
from trimtab_api.rpc import certificate_authority
from trimtab_api.rpc.certificates import Certificates
from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.children.claim import checkpoint_path
from trimtab_operator.children.owned import owned, shared_name
from trimtab_operator.kube.resources import SECRETS, Object, controller_uid

#: Key of the resolved job.
JOB_KEY = PurePosixPath(JOB_FILE).name
_PEM_FILES = (AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE)


def secret(job: TrainingJob, namespace: str, uid: str, now: datetime) -> Object:
    """Return the Secret, the only child that must not be applied again: its certificates are new each time.

    Applying it again is not needed either: later changes of a job's spec concern the operator, not the job's processes.
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
    """Return whether a Secret holds what the operator put there; anyone with the right to may have replaced it."""
    return _files(found) is not None


def certificates_in(found: Object, uid: str) -> Certificates | None:
    """Return the certificates of a Secret; None if it is not intact, or not of the TrainingJob with this uid."""
    files = _files(found)
    if files is None or controller_uid(found) != uid:
        return None
    return Certificates(authority=files[AUTHORITY_FILE], certificate=files[CERTIFICATE_FILE], key=files[KEY_FILE])


def _files(found: Object) -> dict[str, bytes] | None:
    """Return the files of a Secret by name; None if one is missing or malformed."""
    data = found.get("data") or {}
    try:
        files = {name: base64.b64decode(data[name], validate=True) for name in (*_PEM_FILES, JOB_KEY)}
    except (KeyError, ValueError):
        return None
    is_whole = files[JOB_KEY].startswith(b"{") and all(files[name].startswith(b"-----BEGIN ") for name in _PEM_FILES)
    return files if is_whole else None


def issue_certificates(job: str, namespace: str, now: datetime) -> Certificates:
    """Issue the certificates that the job's pods and the operator share; workers and keepers have names of Services."""
    domains = f"*.{job}.{namespace}.svc", keeper_host(job, namespace, "*")
    hosts = [host for domain in domains for host in (domain, f"{domain}.cluster.local")]
    return certificate_authority.issue(f"{namespace}/{job}", hosts, now)


def job_file(job: TrainingJob, namespace: str) -> str:
    """Return the TrainingJob as JSON: name, workers, template, and the fields that differ from their defaults.

    A volume claim is a path by then, under which the pods mount it. A trainer image of another version fills in the
    defaults itself, so an older image need not know a field that was added with a default. Status and metadata of
    Kubernetes are left out.
    """
    required = {"workers": job.spec.workers, "template": job.spec.template}
    head = {"apiVersion": job.api_version, "kind": job.kind, "metadata": {"name": job.metadata.name}}
    plain = TrainingJob.model_validate({**head, "spec": required})
    mounted = job.with_claim_mounted_at(checkpoint_path(job))
    spec = {**required, **_differing(_dumped(mounted), _dumped(plain))}
    return json.dumps({**head, "metadata": {"name": job.metadata.name, "namespace": namespace}, "spec": spec})


def _dumped(job: TrainingJob) -> dict[str, Any]:
    return job.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"workers", "template"})


def _differing(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the values that differ from their defaults, at any depth."""
    differing = {}
    for name, value in values.items():
        default = defaults.get(name)
        if value != default:
            differing[name] = _differing(value, default) if isinstance(default, dict) else value
    return differing
