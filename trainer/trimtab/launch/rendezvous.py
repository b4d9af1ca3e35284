"""How the pods of a job find each other: by name, again and again, until the one that answers proves who it is.

A pod's name may not be known yet, or still mean the pod of an attempt before this one (DNS servers remember names for
30 seconds and more). So a name counts as found only when what listens there shows a certificate of this job for that
name. Done without gRPC, whose threads must not exist yet when the trainers are forked.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from trimtab_api.errors import UserError
from trimtab_api.names import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE

from trimtab.launch.interrupts import pause

#: Seconds between two attempts.
RETRY_SECONDS = 0.5
#: Seconds that one attempt may take.
ATTEMPT_SECONDS = 2.0
#: Seconds between two lines that say what is still waited for.
REPEAT_SECONDS = 15.0


def find(host: str, port: int, certificates: Path | None, deadline: float, say: Callable[[str], None]) -> str:
    """The IP address at which ``host`` answers on ``port``, proven by certificate where there are ``certificates``.

    ``deadline`` is in seconds from now; ``say`` is told now and then why it takes so long. Raises `UserError` with the
    last cause when the deadline has passed, and `Interrupted`.
    """
    context = None if certificates is None else _context(certificates)
    begun = told = time.monotonic()
    while True:
        try:
            return _knock(host, port, context)
        except OSError as error:
            cause = _plain(error)
        now = time.monotonic()
        if now - begun > deadline:
            raise UserError(
                f"did not answer within {deadline:g} s: {cause}; see `kubectl get pods` for what keeps it",
                field="rendezvous",
                value=f"{host}:{port}",
            )
        if now - told > REPEAT_SECONDS:
            say(f"waiting for {host}:{port} for {now - begun:.0f} s: {cause}")
            told = now
        pause(RETRY_SECONDS)


def _knock(host: str, port: int, context: ssl.SSLContext | None) -> str:
    """Resolve, connect and greet, once; returns the IP address. Raises OSError."""
    address = str(socket.getaddrinfo(host, port, family=socket.AF_INET, type=socket.SOCK_STREAM)[0][4][0])
    with socket.create_connection((address, port), timeout=ATTEMPT_SECONDS) as connection:
        if context is not None:
            with context.wrap_socket(connection, server_hostname=host):
                pass
    return address


def _context(certificates: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates / AUTHORITY_FILE))
    context.load_cert_chain(certificates / CERTIFICATE_FILE, certificates / KEY_FILE)
    context.set_alpn_protocols(["h2"])
    return context


def _plain(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name is not known yet"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"something else answers there ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "no answer"
    return error.strerror or str(error)
