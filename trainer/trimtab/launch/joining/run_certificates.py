"""Certificates for the monitors of a run that was given none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from trimtab_api.rpc import certificate_authority
from trimtab_api.rpc.certificates import Certificates

from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, broadcast_json, json_of


@dataclass(frozen=True)
class _Public:
    """The public parts that rank 0 sends to all ranks: PEM."""

    authority: str
    certificate: str


_PUBLIC: Read[_Public] = json_of(_Public)


def certificates_by_secret(group: Group, name: str, addresses: Sequence[str]) -> Certificates:
    """Issue certificates for the run ``name`` on rank 0; every rank calls it together.

    No private key is sent: each rank derives it from the secret by which the ranks know each other.
    """
    key = certificate_authority.derive_key(group.transport.secret)
    told = None
    if group.rank == 0:
        issued = certificate_authority.issue(name, addresses, datetime.now(UTC), key)
        told = {"authority": issued.authority.decode(), "certificate": issued.certificate.decode()}
    public = broadcast_json(group, told, _PUBLIC)
    return Certificates(
        authority=public.authority.encode(),
        certificate=public.certificate.encode(),
        key=certificate_authority.key_pem(key),
    )
