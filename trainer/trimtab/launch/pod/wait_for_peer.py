"""Waits until another pod of the job answers at its name, and proves by certificate that it is that pod.

DNS may not know a pod's name yet, or may still give the address of the attempt before, as servers remember names for 30
seconds and more. So an address counts only when what listens there shows a certificate of this job for that name. This
works without gRPC, whose threads must not exist yet when the ranks are forked.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from trimtab_api.errors import UserError
from trimtab_api.names import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE
from trimtab_api.rpc.addresses import absolute_name

from trimtab.launch.processes.interrupts import pause

#: Seconds between two attempts; they double up to the longest while the name is not known. All workers of all jobs ask
#: the same DNS servers, so the waits have jitter.
RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 8.0
#: Seconds that one attempt may take to connect.
ATTEMPT_SECONDS = 2.0
#: Seconds between two lines that say what it is still waiting for.
REPEAT_SECONDS = 15.0


def wait_for_peer(
    host: str, port: int, certificates: Path | None, deadline: float | None, say: Callable[[str], None]
) -> str:
    """Return the IP address at which ``host`` answers on ``port``, proven by certificate where there are any.

    Args:
        host: Name of the pod, or its address.
        port: Where it listens.
        certificates: Directory of the job's certificates.
        deadline: Most seconds to wait; None: until it answers, or this process is told to end.
        say: Takes a line now and then that says why it takes so long.

    Raises:
        UserError: The deadline has passed; names the last cause.
        Interrupted: This process is told to end.
    """
    context = None if certificates is None else _context(certificates)
    begun = told = time.monotonic()
    retry = RETRY_SECONDS
    while True:
        try:
            return _try_once(host, port, context)
        except OSError as error:
            cause = _plain(error)
            retry = min(2 * retry, LONGEST_RETRY_SECONDS) if isinstance(error, socket.gaierror) else RETRY_SECONDS
        now = time.monotonic()
        if deadline is not None and now - begun > deadline:
            raise UserError(
                f"did not answer within {deadline:g} s: {cause}; run `kubectl get pods` to see the state of its pod",
                field="peer",
                value=f"{host}:{port}",
            )
        if now - told > REPEAT_SECONDS:
            say(f"waiting for {host}:{port} for {now - begun:.0f} s: {cause}")
            told = now
        pause(retry * random.uniform(0.5, 1.0))


def _try_once(host: str, port: int, context: ssl.SSLContext | None) -> str:
    """Resolve the name, connect and check the certificate; returns the IP address. Raises OSError."""
    found = socket.getaddrinfo(absolute_name(host), port, family=socket.AF_INET, type=socket.SOCK_STREAM)
    address = str(found[0][4][0])
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
