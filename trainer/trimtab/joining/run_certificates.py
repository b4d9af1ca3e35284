"""Certificates for the monitors of a run that was given none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from trimtab_api import certificate_authority
from trimtab_api.certificates import Certificates

from trimtab.broadcast import broadcast_json
from trimtab.collectives.group import Group


def certificates_by_secret(group: Group, name: str, addresses: Sequence[str]) -> Certificates:
    """Certificates for the run ``name``, which rank 0 issues; every rank calls it together.

    No private key is sent: each rank derives it from the secret by which the ranks know each other.
    """
    key = certificate_authority.derive_key(group.transport.secret)
    told = None
    if group.rank == 0:
        issued = certificate_authority.issue(name, addresses, datetime.now(UTC), key)
        told = {"authority": issued.authority.decode(), "certificate": issued.certificate.decode()}
    public = {name: pem.encode() for name, pem in broadcast_json(group, told).items()}
    return Certificates(**public, key=certificate_authority.key_pem(key))
