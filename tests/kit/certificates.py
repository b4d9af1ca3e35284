"""Certificates for tests: authorities, and directories with a job's three files."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls, name: str = "a job's authority", lifetime: timedelta = 9 * DAY) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = _sign(subject, key.public_key(), subject, key, lifetime, is_authority=True)
        return cls(certificate, key)

    def issue(
        self,
        directory: Path,
        lifetime: timedelta = DAY,
        names: tuple[str, ...] = ("localhost", "127.0.0.1"),
        begin: timedelta = -5 * DAY,
    ) -> Path:
        """Write ca.crt, tls.crt and tls.key; a negative lifetime makes a certificate that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a job")])
        signed_by = self.certificate.subject, self.key
        certificate = _sign(subject, key.public_key(), *signed_by, lifetime, names=names, begin=begin)
        directory.mkdir(parents=True)
        (directory / "ca.crt").write_bytes(self.certificate.public_bytes(Encoding.PEM))
        (directory / "tls.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        (directory / "tls.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return directory


def _sign(subject, public_key, issuer, issuer_key, lifetime, *, is_authority=False, names=(), begin=-5 * DAY):
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begin)
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(each) for each in names]), False)
    return builder.sign(issuer_key, hashes.SHA256())


def _alternative(name):
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
