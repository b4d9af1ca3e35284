"""The Secret with the certificates by which the job's processes, and the operator, know each other."""

from __future__ import annotations

import base64
from datetime import datetime

from trimtab_api.certificates import Certificates
from trimtab_api.names import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE
from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.certificates import issue
from trimtab_operator.children.owned import owned, tls_name
from trimtab_operator.cluster.resources import SECRETS, Object


def tls_secret(job: TrainingJob, namespace: str, uid: str, now: datetime) -> Object:
    """New certificates each time: the one child that must not be applied again once it is there."""
    issued = issue(job.metadata.name, namespace, now)
    files = {AUTHORITY_FILE: issued.authority, CERTIFICATE_FILE: issued.certificate, KEY_FILE: issued.key}
    return {
        **owned(SECRETS, tls_name(job.metadata.name), job, namespace, uid),
        "type": "kubernetes.io/tls",
        "immutable": True,
        "data": {name: base64.b64encode(text).decode() for name, text in files.items()},
    }


def certificates_in(secret: Object) -> Certificates:
    """Inverse of `tls_secret`."""
    read = {name: base64.b64decode(text) for name, text in secret["data"].items()}
    return Certificates(authority=read[AUTHORITY_FILE], certificate=read[CERTIFICATE_FILE], key=read[KEY_FILE])
