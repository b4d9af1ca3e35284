"""The account that the job's pods run under: without rights, and without a token to use them."""

from __future__ import annotations

from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.children.owned import owned, shared_name
from trimtab_operator.cluster.resources import SERVICE_ACCOUNTS, Object


def service_account(job: TrainingJob, namespace: str, uid: str) -> Object:
    """No role is ever bound to it."""
    head = owned(SERVICE_ACCOUNTS, shared_name(job.metadata.name), job, namespace, uid)
    return {**head, "automountServiceAccountToken": False}
