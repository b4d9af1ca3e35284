"""Which addresses are of this machine: between those, nothing has to be kept from anybody on the way."""

from __future__ import annotations

import ipaddress

from trimtab_api.names import EMULATED_SUBNET


def is_of_this_machine(host: str) -> bool:
    """Whether the host is loopback, or one that the emulator of this machine makes."""
    if host == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return ip.is_loopback or ip in EMULATED_SUBNET
