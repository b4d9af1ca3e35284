"""The secret by which the ranks of a job recognise each other when they connect. It never crosses the network."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from trimtab_api.names import ATTEMPT_VARIABLE
from trimtab_api.rpc.certificates import Certificates

from trimtab.launch.environment.launch_environment import LaunchEnvironment

_NUM_BYTES = 32


def draw() -> str:
    """Draw a new secret, for the ranks of one attempt on this machine."""
    return secrets.token_hex(_NUM_BYTES)


def secret_of(launch: LaunchEnvironment, environ: Mapping[str, str]) -> bytes:
    """Return the secret of this attempt's ranks; empty without certificates and without a local launcher.

    In a pod it is derived from the key that the job's pods share and from the attempt's number: a rank of an earlier
    attempt, such as one on a node that comes back, cannot prove that it belongs to this attempt. On one machine the
    launcher draws it for each attempt.

    Raises:
        UserError: The certificates cannot be used.
    """
    certificates = Certificates.from_environment(environ)
    if certificates is None:
        return launch.secret.encode()
    return secret_of_certificates(certificates, environ.get(ATTEMPT_VARIABLE, ""))


def secret_of_certificates(certificates: Certificates, attempt: str = "") -> bytes:
    """Return the secret of all who share these certificates and run the same attempt."""
    return hmac.digest(certificates.key, f"trimtab: the ranks of a job, attempt {attempt}".encode(), hashlib.sha256)
