"""Hosts of a run share a certificate, and its private key never crosses the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kit.rank_pool import RankPool
from trimtab.transport.group import Group
from trimtab_api.rpc.certificates import Certificates


def sharing(rank: int, size: int, folder: Path) -> tuple[bytes, str]:
    """The key that this rank has, and all that rank 0 told the others for it."""
    from trimtab.launch.joining import run_certificates

    told: list[Any] = []
    broadcast = run_certificates.broadcast_json

    def recording(group: Group, data: Any, read: Any) -> Any:
        told.append(data)
        return broadcast(group, data, read)

    run_certificates.broadcast_json = recording
    group = Group.connect()
    try:
        certificates = run_certificates.certificates_by_secret(group, "digits", ["10.0.0.1", "10.0.0.2"])
    finally:
        run_certificates.broadcast_json = broadcast
        group.close()
    own = folder / str(rank)
    own.mkdir()
    certificates.write(own)
    Certificates.read(own)  # which refuses a key that is not the certificate's
    return certificates.key, str(told)


def test_each_rank_derives_the_key(rank_pool: RankPool, tmp_path: Path) -> None:
    (first, told), (second, _) = rank_pool.run_in_process_group(2, sharing, tmp_path)
    assert first == second
    assert b"PRIVATE KEY" in first
    assert "BEGIN CERTIFICATE" in told
    assert "PRIVATE" not in told
