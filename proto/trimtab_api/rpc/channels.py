"""gRPC channels and servers of Trimtab's processes: mutual TLS, and quick reconnection to a peer that vanished.

If ``TRIMTAB_TLS_DIR`` is set, every channel and every server uses the certificates there, and a server turns away
clients without one. If it is not set, plain text is spoken, but only on loopback and among hosts that this machine
emulates. A Unix socket (``unix:PATH``) is guarded by its file's permissions and always speaks plain text.
"""

from __future__ import annotations

import re

import grpc
import grpc.aio

from trimtab_api.errors import UserError
from trimtab_api.names import TLS_VARIABLE
from trimtab_api.rpc.addresses import is_of_this_machine
from trimtab_api.rpc.certificates import Certificates

MAX_MESSAGE_BYTES = 4 << 20
"""The largest message that is sent or taken, at both ends: forty times the network state of the most workers."""

_MESSAGE_LIMITS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)

CLIENT_OPTIONS = (
    *_MESSAGE_LIMITS,
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 4000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)
"""Options of every channel; a name is asked anew with every attempt, as a pod that comes back has another address."""

SERVER_OPTIONS = (
    *_MESSAGE_LIMITS,
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)
"""Options of every server: it bears the clients' pings, and a busy port is an error and never shared."""


def open_channel(address: str, certificates: Certificates | None = None) -> grpc.Channel:
    """Open a channel to ``HOST:PORT``, by ``certificates`` or else those of the environment.

    Raises:
        UserError: If the certificates cannot be used, or are missing for an address of another machine.
    """
    certificates = certificates or _own(address)
    if certificates is None:
        return grpc.insecure_channel(address, options=CLIENT_OPTIONS)
    return grpc.secure_channel(address, _channel_credentials(certificates), options=CLIENT_OPTIONS)


def open_async_channel(
    address: str,
    certificates: Certificates | None = None,
    max_message_bytes: int | None = None,
    server_name: str | None = None,
) -> grpc.aio.Channel:
    """Open a channel for asyncio; see `open_channel`.

    Args:
        address: ``HOST:PORT``.
        certificates: None: those of the environment.
        max_message_bytes: A call that is answered by more fails; None: 4 MiB.
        server_name: Name of the server's certificate, if ``address`` is an IP address.
    """
    certificates = certificates or _own(address)
    limit = () if max_message_bytes is None else (("grpc.max_receive_message_length", max_message_bytes),)
    options = (*(option for option in CLIENT_OPTIONS if option[0] not in dict(limit)), *limit)
    if server_name is not None:
        options = (*options, ("grpc.ssl_target_name_override", server_name), ("grpc.default_authority", server_name))
    if certificates is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, _channel_credentials(certificates), options=options)


def listen(server: grpc.Server | grpc.aio.Server, address: str, certificates: Certificates | None = None) -> int:
    """Let a server listen at ``HOST:PORT`` (port 0: any that is free); return the port.

    Raises:
        UserError: If the certificates cannot be used.
        RuntimeError: If the port is taken.
    """
    certificates = certificates or _own(address)
    if certificates is None:
        return server.add_insecure_port(address)
    credentials = grpc.ssl_server_credentials(
        [(certificates.key, certificates.certificate)],
        root_certificates=certificates.authority,
        require_client_auth=True,
    )
    return server.add_secure_port(address, credentials)


def format_grpc_error(error: Exception) -> str:
    """Return why a call failed, in one plain sentence.

    TLS's own words say who refused whom only to those who know it.
    """
    details = _details(error)
    for said, meaning in _HANDSHAKE_FAILURES:
        if re.search(said, details):
            return meaning
    return details


#: Patterns of gRPC's messages for a failed handshake, and their meaning.
_HANDSHAKE_FAILURES = (
    ("certificate has expired", "the server's certificate has expired; restart the job for a new one"),
    ("Hostname Verification Check failed", "the server's certificate is for other host names than the one called"),
    ("WRONG_VERSION_NUMBER", f"the server speaks plain text; set {TLS_VARIABLE} where it is started"),
    (
        "CERTIFICATE_VERIFY_FAILED|certificate signature failure",
        "the server's certificate is of another authority than this job's",
    ),
    (
        "failed to connect.*(Socket closed|Connection reset)",
        f"the server hung up on a client without a valid certificate of its job; set {TLS_VARIABLE} to this job's",
    ),
)


def _details(error: Exception) -> str:
    details = getattr(error, "details", None)
    return (details() if callable(details) else None) or str(error)


def _own(address: str) -> Certificates | None:
    """Return the environment's certificates; None if the address may be spoken to in plain text.

    Raises:
        UserError: If the certificates cannot be used, or are missing for an address of another machine.
    """
    if address.startswith("unix:"):
        return None
    certificates = Certificates.from_environment()
    if certificates is None and not is_of_this_machine(address.rpartition(":")[0]):
        raise UserError(
            "is not an address of this machine, and plain text goes nowhere else; "
            f"set {TLS_VARIABLE} to a directory with certificates",
            field="address",
            value=address,
        )
    return certificates


def _channel_credentials(certificates: Certificates) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=certificates.authority,
        private_key=certificates.key,
        certificate_chain=certificates.certificate,
    )
