"""The certificates by which the processes of one job know each other: read, and checked before anything is opened.

A job's Secret holds an authority of its own and one certificate that all its processes share, so whoever presents a
certificate of that authority belongs to the job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from trimtab_api.errors import UserError
from trimtab_api.input_files import read_bytes
from trimtab_api.names import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, TLS_VARIABLE

_REMEDY = "delete the job's Secret, so that the operator issues another, and restart the job"


@dataclass(frozen=True)
class Certificates:
    """PEM: the authority that peers must be certified by, and one's own certificate and key."""

    authority: bytes
    certificate: bytes
    key: bytes

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self | None:
        """Read the directory that ``TRIMTAB_TLS_DIR`` names; return None if it is not set.

        Raises:
            UserError: If a file there cannot be used.
        """
        directory = environ.get(TLS_VARIABLE)
        return None if directory is None else cls.read(Path(directory))

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the three files of a directory.

        Raises:
            UserError: If a file cannot be used; the error names it.
        """
        found = cls(
            authority=_read(directory / AUTHORITY_FILE),
            certificate=_read(directory / CERTIFICATE_FILE),
            key=_read(directory / KEY_FILE),
        )
        found._check(directory)
        return found

    def write(self, directory: Path) -> None:
        """Write the files that `read` reads; only this user may read them."""
        of_file = {AUTHORITY_FILE: self.authority, CERTIFICATE_FILE: self.certificate, KEY_FILE: self.key}
        for name, pem in of_file.items():
            file = directory / name
            file.touch(mode=0o600)
            file.write_bytes(pem)

    def _check(self, directory: Path) -> None:
        """Check what a handshake would refuse: only the other side's log would show the cause then."""
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        file = ""
        try:
            file = AUTHORITY_FILE
            authority = x509.load_pem_x509_certificate(self.authority)
            file = CERTIFICATE_FILE
            certificate = x509.load_pem_x509_certificate(self.certificate)
            file = KEY_FILE
            key = load_pem_private_key(self.key, password=None)
        except (ValueError, TypeError) as error:
            raise _wrong(directory / file, f"is not PEM that can be read ({error}); {_REMEDY}") from None
        now = datetime.now(UTC)
        for file, each in ((AUTHORITY_FILE, authority), (CERTIFICATE_FILE, certificate)):
            if now > each.not_valid_after_utc:
                raise _wrong(directory / file, f"expired at {each.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; {_REMEDY}")
            if now < each.not_valid_before_utc:
                since = f"{each.not_valid_before_utc:%Y-%m-%d %H:%M}"
                raise _wrong(directory / file, f"is valid from {since} UTC on; set this machine's clock, or wait")
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            raise _wrong(
                directory / CERTIFICATE_FILE, f"was not issued by the authority in {AUTHORITY_FILE}; {_REMEDY}"
            ) from None
        if key.public_key() != certificate.public_key():
            raise _wrong(directory / KEY_FILE, f"is not the key of {CERTIFICATE_FILE}; {_REMEDY}")


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror}); mount the job's Secret there") from None


def _wrong(path: Path, remedy: str) -> UserError:
    return UserError(remedy, field=TLS_VARIABLE, value=str(path))
