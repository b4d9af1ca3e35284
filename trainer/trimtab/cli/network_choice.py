"""Whether a run's network is emulated, decided before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

from trimtab.launch.places import why_not_emulated


def choose_network(network: Path | None, loopback: bool) -> Path | None:
    """The network file to emulate, or None for loopback; a network that cannot be emulated here is said in one line.

    The file is checked either way. Raises `UserError` where it is wrong.
    """
    if network is None:
        return None
    from trimtab_netmon.emulate import load_network

    load_network(network)
    if loopback:
        return None
    if why_not := why_not_emulated():
        print(f"trimtab: on loopback, without the network of {network}: {why_not}", file=sys.stderr)
        return None
    return network
