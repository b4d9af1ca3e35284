"""Addresses: those of this machine, between which nothing is encrypted, and names as DNS takes them."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from trimtab_api.names import EMULATED_SUBNET


def is_of_this_machine(host: str) -> bool:
    """Return whether the host is loopback, or one that the emulator of this machine makes."""
    if host == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return ip.is_loopback or ip in EMULATED_SUBNET


def absolute_name(host: str, resolv_conf: Path = Path("/etc/resolv.conf")) -> str:
    """Return a Service's or pod's name (``... .svc``) with the cluster's domain and a trailing dot.

    A resolver otherwise tries the name with each domain of its search list first, which takes several queries. A pod's
    search list tells the cluster's domain (``svc.DOMAIN``). Any other name, or one on a host without such a list, is
    returned as it is.
    """
    if not host.endswith(".svc"):
        return host
    try:
        lines = resolv_conf.read_text(errors="replace").splitlines()
    except OSError:
        return host
    searches = [line.split()[1:] for line in lines if line.startswith("search")]
    domains = [
        domain.rstrip(".").removeprefix("svc.") for domain in (searches or [[]])[-1] if domain.startswith("svc.")
    ]
    return f"{host}.{domains[0]}." if domains else host
