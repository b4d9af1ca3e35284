"""The secret by which the ranks of a job recognise each other when they connect. It never crosses the network."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from trimtab_api.certificates import Certificates

from trimtab.environment.launch_environment import LaunchEnvironment

_NUM_BYTES = 32


def draw() -> str:
    """A new secret, for the ranks of one attempt on this machine."""
    return secrets.token_hex(_NUM_BYTES)


def secret_of(launch: LaunchEnvironment, environ: Mapping[str, str]) -> bytes:
    """The job's secret: derived from the key that its pods share, or drawn by the local launcher; empty without either.

    Raises `UserError` for certificates that cannot be used.
    """
    certificates = Certificates.from_environment(environ)
    return launch.secret.encode() if certificates is None else secret_of_certificates(certificates)


def secret_of_certificates(certificates: Certificates) -> bytes:
    """The secret of all who share these."""
    return hmac.digest(certificates.key, b"trimtab: the ranks of a job", hashlib.sha256)
