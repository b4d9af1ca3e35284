"""An authority that issues the certificates of one job: it exists only to sign one certificate that all share.

Elliptic curve P-256: an RSA key would cost 40 ms of a core, a thousand jobs the better part of a minute.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trimtab_api.rpc.certificates import Certificates

#: They live as long as their job; this is only longer than any.
_VALIDITY = timedelta(days=3650)
#: Clocks of hosts differ.
_BACKDATED = timedelta(hours=1)
#: A common name may not be longer.
_LONGEST_NAME = 64
#: Order of P-256: private keys are from 1 to one less (SEC 2).
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def derive_key(secret: bytes) -> ec.EllipticCurvePrivateKey:
    """Derive the private key that all holders of the ``secret`` compute alike, so that it need not be sent."""
    drawn = hmac.digest(secret, b"trimtab: the key of a run's certificate", hashlib.sha512)
    return ec.derive_private_key(1 + int.from_bytes(drawn, "big") % (_ORDER - 1), ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the key in PEM, as `Certificates` holds it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def issue(
    name: str, hosts: Sequence[str], now: datetime, key: ec.EllipticCurvePrivateKey | None = None
) -> Certificates:
    """Issue certificates by which a job's processes know each other; nobody keeps the authority's key.

    Args:
        name: Name of the job.
        hosts: DNS names, which may begin with ``*.``, and IP addresses of its servers; ``localhost`` and 127.0.0.1 are
            added.
        now: The present time.
        key: The processes' own key; None: a new one.
    """
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), key or ec.generate_private_key(ec.SECP256R1())
    authority_name, subject = _name(f"{name} authority"), _name(name)
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(subject, authority_name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(
            x509.SubjectAlternativeName([_host(each) for each in (*hosts, "localhost", "127.0.0.1")]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return Certificates(
        authority=authority.public_bytes(serialization.Encoding.PEM),
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key_pem(key),
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_NAME])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _VALIDITY)
    )


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
