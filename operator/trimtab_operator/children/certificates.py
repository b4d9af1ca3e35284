"""The certificates of one job, which its pods share."""

from __future__ import annotations

from datetime import datetime

from trimtab_api.rpc import certificate_authority
from trimtab_api.rpc.certificates import Certificates


def issue(job: str, namespace: str, now: datetime) -> Certificates:
    """Certificates by which the job's pods and the operator know each other; each worker has its Service's name."""
    domain = f"*.{job}.{namespace}.svc"
    return certificate_authority.issue(f"{namespace}/{job}", (domain, f"{domain}.cluster.local"), now)
