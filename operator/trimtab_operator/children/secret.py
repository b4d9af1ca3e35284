"""The Secret that holds all files of the job's pods: certificates, and the job as they read it."""

from __future__ import annotations

import base64
from datetime import datetime
from pathlib import PurePosixPath

from trimtab_api.names import AUTHORITY_FILE, CERTIFICATE_FILE, JOB_FILE, KEY_FILE
from trimtab_api.rpc.certificates import Certificates
from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.children.certificates import issue
from trimtab_operator.children.job_file import job_file
from trimtab_operator.children.owned import owned, shared_name
from trimtab_operator.kube.resources import SECRETS, Object, controller_uid

#: Key of the resolved job.
JOB_KEY = PurePosixPath(JOB_FILE).name
_PEM_FILES = (AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE)


def secret(job: TrainingJob, namespace: str, uid: str, now: datetime) -> Object:
    """The only child that must not be applied again once it exists, because its certificates are new each time.

    Nor need it be: what may change of a job's spec is the operator's business, not its processes'.
    """
    issued = issue(job.metadata.name, namespace, now)
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
